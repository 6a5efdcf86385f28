"""Windows: which nodes a ProfilerStep mark stands for, and how one is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import operation_ids, program_of
from trace_builder import NodeSpec, T, mark, node, operator, thread, write_trace

from et_replay.errors import EtReplayError, UsageError
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_trace
from et_replay.program import Window, build_program, select_window, windows


def trace_of(folder: Path, *nodes: NodeSpec) -> ExecutionTrace:
    return open_trace(write_trace(folder / "trace.json", *nodes))


def node_ids(trace: ExecutionTrace, window: Window) -> list[int]:
    return trace.ids[window.begin : window.end].tolist()


def listing(trace: ExecutionTrace) -> list[tuple[str, list[int]]]:
    return [(window.name, node_ids(trace, window)) for window in windows(trace)]


def step(id: int, number: int) -> NodeSpec:
    return mark(id, f"ProfilerStep#{number}")


def two_steps(folder: Path) -> ExecutionTrace:
    return trace_of(
        folder,
        step(3, 3),
        operator(4, "aten::relu", 3),
        step(5, 4),
        operator(6, "aten::relu", 5),
        operator(7, "aten::relu", 5),
    )


def test_a_trace_without_marks_is_one_window(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, operator(3, "aten::relu"), operator(4, "aten::relu"))

    assert listing(trace) == [("all", [1, 2, 3, 4])]


def test_one_mark_leaves_out_what_comes_before_and_after_it(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        operator(3, "aten::warm_up"),
        step(4, 7),
        operator(5, "aten::relu", 4),
        operator(6, "aten::empty", 5),
        operator(7, "aten::after"),
    )

    assert listing(trace) == [("ProfilerStep#7", [4, 5, 6])]


def test_a_step_ends_at_the_next_mark(tmp_path: Path) -> None:
    assert listing(two_steps(tmp_path)) == [
        ("ProfilerStep#3", [3, 4]),
        ("ProfilerStep#4", [5, 6, 7]),
    ]


def test_all_of_four_marks_are_listed(tmp_path: Path) -> None:
    marks = [(3, 2), (5, 3), (7, 6), (9, 7)]
    nodes = [
        each for id, number in marks for each in (step(id, number), operator(id + 1, "a::b", id))
    ]
    trace = trace_of(tmp_path, *nodes)

    assert listing(trace) == [
        ("ProfilerStep#2", [3, 4]),
        ("ProfilerStep#3", [5, 6]),
        ("ProfilerStep#6", [7, 8]),
        ("ProfilerStep#7", [9, 10]),
    ]


def test_nodes_of_the_backward_thread_belong_to_a_step_by_id(tmp_path: Path) -> None:
    backward = thread(5, tid=2)
    trace = trace_of(
        tmp_path,
        step(3, 1),
        operator(4, "aten::mm", 3),
        backward,
        operator(6, "aten::mm", 5, tid=2),
        step(7, 2),
        operator(8, "aten::mm", 7),
        operator(9, "aten::mm", 5, tid=2),
        operator(10, "aten::add_", 7),
        operator(11, "aten::after"),
        operator(12, "aten::mm", 5, tid=2),
    )

    assert listing(trace) == [
        ("ProfilerStep#1", [3, 4, 5, 6]),
        ("ProfilerStep#2", [7, 8, 9, 10]),
    ]
    assert operation_ids(build_program(trace)) == [8, 9, 10]


def test_the_last_step_may_end_with_the_trace(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        step(3, 1),
        operator(4, "aten::mm", 3),
        thread(5, tid=2),
        operator(6, "aten::mm", 5, tid=2),
    )

    assert listing(trace) == [("ProfilerStep#1", [3, 4, 5, 6])]


def test_an_empty_step_is_listed_but_not_chosen(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        step(3, 0),
        operator(4, "aten::mm", 3),
        step(5, 1),
        node(6, "detach", 5, inputs=[T(7, 8, 0, 1, 4)]),
    )

    assert [name for name, _ in listing(trace)] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert select_window(trace, None).name == "ProfilerStep#0"
    assert operation_ids(build_program(trace)) == [4]


def test_the_last_step_with_an_operator_is_the_default(tmp_path: Path) -> None:
    trace = two_steps(tmp_path)

    assert select_window(trace, None).name == "ProfilerStep#4"
    assert operation_ids(build_program(trace)) == [6, 7]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", [3, 4]),
        ("ProfilerStep#3", [3, 4]),
        ("ProfilerStep#4", [5, 6, 7]),
        ("first", [3, 4]),
        ("last", [5, 6, 7]),
        ("all", [1, 2, 3, 4, 5, 6, 7]),
        ("4:6", [4, 5]),
    ],
)
def test_a_window_is_named_by_step_place_or_ids(
    tmp_path: Path, text: str, expected: list[int]
) -> None:
    trace = two_steps(tmp_path)

    assert node_ids(trace, select_window(trace, text)) == expected


@pytest.mark.parametrize(
    "text",
    ["8", "ProfilerStep#8", "middle", "", "6:4", "900:901", "a:b", 5000 * "9" + ":", "0:0"],
)
def test_a_window_that_is_not_there_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    trace = two_steps(tmp_path)

    with pytest.raises(EtReplayError):
        select_window(trace, text)


@pytest.mark.parametrize(("text", "named"), [("0:0", "0:0"), (":0", "0:0"), ("900:", "900:")])
def test_node_ids_without_a_node_are_named_as_they_were_asked_for(
    tmp_path: Path, text: str, named: str
) -> None:
    trace = two_steps(tmp_path)

    with pytest.raises(UsageError, match=f"has no node in {named}; its node ids are 1 to 7"):
        select_window(trace, text)


def test_operations_are_the_operators_without_an_operator_around_them(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::linear"),
        operator(4, "aten::addmm", 3),
        mark(5, "forward"),
        operator(6, "aten::relu", 5),
        node(7, "nccl:all_reduce"),
        node(8, "record_param_comms", 7),
        operator(9, "c10d::allreduce_"),
        node(10, "record_param_comms", 9),
        node(11, "triton_poi_fused_0", kernel_backend="triton"),
    )

    assert operation_ids(program) == [3, 6, 8, 9, 11]


def test_an_operator_under_a_label_under_an_operator_is_its_child(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::detach"),
        node(4, "detach", 3),
        operator(5, "aten::alias", 4),
    )

    assert operation_ids(program) == [3]


def test_an_operator_whose_parent_is_outside_the_window_is_an_operation(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::linear"),
        operator(4, "aten::t", 3),
        operator(5, "aten::addmm", 3),
        operator(6, "aten::relu"),
        window="4:6",
    )

    assert operation_ids(program) == [4, 5]


def test_a_storage_of_an_earlier_step_existed_before_the_window(tmp_path: Path) -> None:
    weight = T(11, 12, 0, 100, 4)
    program = program_of(
        tmp_path,
        step(3, 1),
        operator(4, "aten::empty", 3, outputs=[weight]),
        step(5, 2),
        operator(6, "aten::relu", 5, inputs=[weight]),
    )

    assert [storage.kind.name for storage in program.storages] == ["INPUT"]


def test_execution_order_is_id_order_not_file_order(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(5, "aten::relu", inputs=[T(30, 31, 0, 1, 4)]),
        operator(4, "aten::empty", 3, outputs=[T(30, 31, 0, 1, 4)]),
        operator(3, "aten::zeros", outputs=[T(30, 31, 0, 1, 4)]),
    )

    assert operation_ids(program) == [3, 5]
    assert len(program.storages) == 1
    assert program.storages[0].kind.name == "PRODUCED"


def test_an_operator_that_lost_its_parent_does_not_end_the_step(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "trace.json",
        mark(3, "ProfilerStep#1"),
        operator(4, "aten::relu", 3, inputs=[T(5, 6, 0, 4, 4)], outputs=[T(7, 8, 0, 4, 4)]),
        operator(9, "aten::to_padded_tensor", 0, outputs=[T(10, 11, 0, 4, 4)]),
        operator(12, "aten::relu", 3, inputs=[T(10, 11, 0, 4, 4)], outputs=[T(13, 14, 0, 4, 4)]),
    )
    program = build_program(open_trace(path))
    assert [operation.node.id for operation in program.operations] == [4, 9, 12]


def test_a_step_reaches_to_its_own_end_in_the_file_where_parents_are_lost_before(
    tmp_path: Path,
) -> None:
    # Node 5 raised: the observer lost its end, and took it for the parent of all that followed.
    trace = trace_of(
        tmp_path,
        operator(4, "aten::relu", 3),
        operator(6, "aten::relu", 5),
        operator(8, "aten::relu", 7),
        node(7, "backward", 5),
        step(3, 3),
        operator(9, "aten::relu", 5),
    )

    assert listing(trace) == [("ProfilerStep#3", [3, 4, 6, 7, 8])]


def test_the_whole_trace_is_chosen_where_no_step_holds_an_operator(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "trace.json",
        operator(3, "aten::relu", 2, inputs=[T(5, 6, 0, 4, 4)], outputs=[T(7, 8, 0, 4, 4)]),
        mark(9, "ProfilerStep#1"),
    )
    assert select_window(open_trace(path)).name == "all"


def test_a_number_finds_a_mark_written_with_blanks(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", mark(3, "ProfilerStep # 4"))
    assert select_window(open_trace(path), "4").name == "ProfilerStep # 4"
