"""gloo's work crosses calls of the thread that asked for it: who called whom all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from trace_builder import NodeSpec, T, mark, node, operator, thread, write_trace

from et_replay.errors import TraceError
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_trace

MENDED = (
    "The parents of {} were read from the order of the file: gloo's work, which ends on threads of"
    " its own, had PyTorch's observer record wrong ones."
)


def tensor(storage: int) -> object:
    return T(storage, storage, 0, 8, 4, "cpu")


def call(id: int, name: str, parent: int, storage: int, tid: int = 1) -> NodeSpec:
    return operator(id, name, parent, [tensor(storage)], [tensor(storage)], tid=tid)


def work(id: int, parent: int, storage: int) -> NodeSpec:
    return node(id, "gloo:all_reduce", parent, [tensor(storage)])


def opened(tmp_path: Path, *nodes: NodeSpec) -> ExecutionTrace:
    """Read nodes in the order of the file, in which they ended; roots come first."""
    return open_trace(write_trace(tmp_path / "trace.json", *nodes))


def parents(trace: ExecutionTrace) -> dict[int, int]:
    return {node.id: node.parent for node in map(trace.node, range(len(trace)))}


def tree(trace: ExecutionTrace) -> dict[int, int]:
    ids = trace.ids.tolist()
    return {ids[k]: ids[above] for k, above in enumerate(trace.parents.tolist()) if above >= 0}


def test_a_call_whose_children_fell_to_work_gets_them_back(tmp_path: Path) -> None:
    """The end of work 5 took call 6 off the stack, whose last child 8 became that of the work."""
    trace = opened(
        tmp_path,
        call(4, "c10d::allreduce_", 3, 50),
        call(7, "aten::view", 6, 60),
        work(5, 3, 50),
        call(8, "aten::view", 5, 60),
        call(6, "aten::flatten", 5, 60),
        call(9, "aten::relu", 3, 60),
        mark(3, "ProfilerStep#1"),
    )
    assert tree(trace) == {2: 1, 3: 2, 4: 3, 5: 3, 6: 3, 7: 6, 8: 6, 9: 3}
    assert parents(trace)[8] == 6
    assert MENDED.format("2 nodes") in trace.notes


def test_a_call_that_ended_before_its_work_has_no_later_calls(tmp_path: Path) -> None:
    trace = opened(
        tmp_path,
        call(4, "c10d::recv_", 3, 50),
        call(6, "c10d::recv_", 4, 51),
        work(5, 4, 50),
        work(7, 4, 51),
        mark(3, "ProfilerStep#1"),
    )
    assert tree(trace)[6] == 3


def test_a_call_that_began_before_its_parent_is_no_orphan(tmp_path: Path) -> None:
    """Ids of work are given on the way, so a call can name a parent with a larger one."""
    trace = opened(
        tmp_path,
        call(4, "c10d::broadcast_", 3, 50),
        call(7, "aten::view", 5, 60),
        call(5, "aten::unflatten", 6, 60),
        work(6, 3, 50),
        mark(3, "ProfilerStep#1"),
    )
    assert tree(trace) == {2: 1, 3: 2, 4: 3, 5: 3, 6: 3, 7: 5}
    assert trace.notes == (MENDED.format("1 node"),)


def test_a_call_outside_of_all_others_hangs_below_its_thread(tmp_path: Path) -> None:
    trace = opened(
        tmp_path,
        call(4, "c10d::allreduce_", 2, 50),
        call(6, "aten::relu", 4, 60),
        work(5, 4, 50),
    )
    assert tree(trace)[6] == 2


def test_other_threads_stay_as_they_were_recorded(tmp_path: Path) -> None:
    trace = opened(
        tmp_path,
        thread(10, tid=2),
        call(12, "aten::mm", 10, 70, tid=2),
        call(4, "c10d::allreduce_", 2, 50),
        node(11, "autograd::engine::evaluate_function: MmBackward", 10, tid=2),
        work(5, 4, 50),
    )
    assert tree(trace)[12] == 10
    assert 11 in trace.ids


def test_what_gloos_threads_run_is_left_out(tmp_path: Path) -> None:
    trace = opened(
        tmp_path,
        call(4, "c10d::_allgather_base_", 2, 50),
        thread(6, tid=2),
        call(7, "aten::view", 6, 50, tid=2),
        call(8, "aten::copy_", 6, 55, tid=2),
        work(5, 4, 50),
        call(9, "aten::relu", 2, 50),
    )
    assert trace.ids.tolist() == [1, 2, 4, 5, 9]
    assert trace.notes == ("3 nodes left out: what gloo's own threads ran as part of collectives.",)


@pytest.mark.parametrize(
    ("first", "also"),
    [
        (call(7, "aten::view", 6, 99, tid=2), ()),
        (call(7, "aten::view", 6, 50, tid=2), (mark(8, "loading", 6, tid=2),)),
        (call(7, "c10d::allreduce_", 6, 50, tid=2), ()),
    ],
    ids=["another tensor", "a label", "a collective"],
)
def test_a_thread_with_work_of_its_own_is_kept(
    tmp_path: Path, first: NodeSpec, also: Sequence[NodeSpec]
) -> None:
    trace = opened(
        tmp_path, call(4, "c10d::broadcast_", 2, 50), work(5, 4, 50), thread(6, tid=2), first, *also
    )
    assert 7 in trace.ids
    assert trace.notes == ()


def test_nodes_that_are_sorted_tell_no_ends_and_stay_as_recorded(tmp_path: Path) -> None:
    trace = opened(
        tmp_path,
        mark(3, "ProfilerStep#1"),
        call(4, "c10d::allreduce_", 3, 50),
        work(5, 4, 50),
        call(6, "aten::flatten", 3, 60),
        call(7, "aten::view", 6, 60),
    )
    assert tree(trace) == {2: 1, 3: 2, 4: 3, 5: 4, 6: 3, 7: 6}
    assert trace.notes == ()


def test_strict_reading_takes_such_a_trace(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "trace.json",
        call(4, "c10d::allreduce_", 2, 50),
        call(6, "aten::relu", 4, 60),
        work(5, 4, 50),
    )
    assert tree(open_trace(path, strict=True))[6] == 2


def test_without_work_parents_are_taken_as_they_are(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", call(4, "aten::relu", 5, 50), mark(5, "later"))
    with pytest.raises(TraceError):
        open_trace(path, strict=True)
