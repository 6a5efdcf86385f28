"""Which collectives are made, by whom, and when they are waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import program_of
from trace_builder import NodeSpec, T, Typed, node, operator

from et_replay.errors import UsageError
from et_replay.program import Program
from et_replay.program.part import part_of
from et_replay.ranks.collective import Collective, read_collectives
from et_replay.ranks.groups import Group, Groups
from et_replay.replay.communication.buffers import buffers_of
from et_replay.replay.communication.casting import Casting, cast
from et_replay.replay.communication.choice import Choice
from et_replay.replay.communication.place import Place
from et_replay.replay.communication.plan import ExchangePlan, plan_exchange

WHOLE = Group((0, 1, 2, 3))
PAIR = Group((1, 3), 0)
_OBJECT = Typed("<Object>", "Object")
_REDUCE = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group,"
    " __torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True,"
    " int timeout=-1) -> (Tensor[], __torch__.torch.classes.c10d.Work)"
)
_SEND = (
    "c10d::send(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group, int dst,"
    " int tag) -> __torch__.torch.classes.c10d.Work"
)


def tensor(number: int) -> Typed:
    return T(number, number, 0, 8, 4, "cpu")


def all_reduce(id: int, *numbers: int, asynchronous: bool = True) -> NodeSpec:
    tensors = [tensor(number) for number in numbers]
    inputs = [tensors, _OBJECT, _OBJECT, None, asynchronous, -1]
    return operator(id, "c10d::allreduce_", 2, inputs, [tensors, _OBJECT], schema=_REDUCE)


def send(id: int, number: int) -> NodeSpec:
    return operator(id, "c10d::send", 2, [[tensor(number)], _OBJECT, 1, 0], [_OBJECT], schema=_SEND)


def relu(id: int, given: int, made: int) -> NodeSpec:
    schema = "aten::relu(Tensor self) -> Tensor"
    return operator(id, "aten::relu", 2, [tensor(given)], [tensor(made)], schema=schema)


def wait(id: int, number: int) -> NodeSpec:
    return node(id, "record_param_comms", 2, [number, "", 0, "wait", [], [], -1, -1, 2])


def plan(program: Program) -> ExchangePlan:
    groups = Groups(0, 2, (Group((0, 1)),))
    choice = Choice(groups, Casting(0, 2, (0, 1), 2), on_host=True)
    known = {each.node_id: each for each in read_collectives(program.trace, groups)}
    return plan_exchange(program, known, choice.is_made, choice.is_asynchronous)


def test_an_asynchronous_call_is_waited_for_where_its_result_is_first_taken(tmp_path: Path) -> None:
    program = program_of(tmp_path, all_reduce(10, 5), relu(11, 6, 7), relu(12, 5, 8))

    assert plan(program).before == {2: [0]}


def test_a_call_that_nothing_takes_is_waited_for_at_the_end(tmp_path: Path) -> None:
    assert plan(program_of(tmp_path, all_reduce(10, 5), relu(11, 6, 7))).at_end == [0]


def test_a_synchronous_call_needs_no_wait(tmp_path: Path) -> None:
    found = plan(program_of(tmp_path, all_reduce(10, 5, asynchronous=False), relu(11, 5, 7)))

    assert (found.before, found.at_end) == ({}, [])


def test_what_is_sent_may_be_read_before_it_has_arrived(tmp_path: Path) -> None:
    found = plan(program_of(tmp_path, send(10, 5), relu(11, 5, 7)))

    assert (found.before, found.at_end) == ({}, [0])


def test_a_recorded_wait_is_for_the_call_of_its_number(tmp_path: Path) -> None:
    def record(id: int, parent: int, number: int) -> NodeSpec:
        inputs = [[tensor(5)], number, "", 0, "allreduce", [], [], 0, 1, 2]
        return node(id, "record_param_comms", parent, inputs)

    program = program_of(
        tmp_path,
        all_reduce(10, 5),
        record(11, 10, 33),
        all_reduce(12, 6),
        record(13, 12, 34),
        wait(14, 34),
    )

    assert list(plan(program).waits.values()) == [1]


def test_a_call_that_gives_and_takes_one_tensor_has_it_on_both_sides(tmp_path: Path) -> None:
    program = program_of(tmp_path, all_reduce(10, 5))

    buffers = buffers_of(program.operations[0].call, "all_reduce")

    assert buffers.given == buffers.taken == buffers.slots


def test_a_functional_call_has_its_result_made(tmp_path: Path) -> None:
    schema = "_c10d_functional::all_reduce(Tensor input, str reduce_op, Any group_name) -> Tensor"
    program = program_of(
        tmp_path, operator(
            10, "_c10d_functional::all_reduce", 2, [tensor(5), "sum", "0"], [tensor(6)],
            schema=schema,
        )
    )  # fmt: skip

    buffers = buffers_of(program.operations[0].call, "all_reduce")

    assert (len(buffers.given), buffers.taken) == (1, ())
    assert [ref.storage_id for ref in buffers.made] == [6]


def test_a_part_of_a_program_holds_only_the_storages_that_it_takes(tmp_path: Path) -> None:
    program = program_of(
        tmp_path, relu(10, 5, 6), all_reduce(11, 6), relu(12, 6, 7), relu(13, 7, 8)
    )

    part = part_of(program, lambda call: call.node.is_collective)

    assert [operation.node.id for operation in part.operations] == [11]
    assert {s.storage_id: s.size for s in part.storages} == {5: 0, 6: 32, 7: 0, 8: 0}


def test_a_group_without_some_of_its_members_has_the_others() -> None:
    casting = Casting(process=1, processes=2, ranks=(0, 1, 2, 3), job_size=4)

    assert casting.key(WHOLE) == ((0, 1), (0, 1, 2, 3), 0)
    assert casting.key(PAIR) == ((1,), (1, 3), 0)
    assert casting.present(PAIR) == (0,)


def test_more_processes_than_ranks_replay_the_job_side_by_side() -> None:
    casting = Casting(process=5, processes=8, ranks=(0, 1, 2, 3), job_size=4)

    assert casting.rank == 1
    assert casting.key(PAIR) == ((5, 7), (1, 3), 0)


def test_another_number_of_processes_is_refused_unless_allowed() -> None:
    place = Place(rank=0, size=2, alone=False)

    with pytest.raises(UsageError, match="has 4 ranks, expected a process for each, got 2") as told:
        cast(place, [0, 1, 2, 3], 4, allowed=False)
    assert str(told.value).endswith(
        "--replay-mode comp the file of one rank, in a single process and without the collectives."
    )
    (note,) = cast(place, [0, 1, 2, 3], 4, allowed=True).notes()
    assert note.startswith("A job of 4 ranks is replayed by 2 processes: groups have only the")


@pytest.mark.parametrize(
    ("collective", "reason"),
    [
        (Collective("all_reduce", 0, 1, group=0), ""),
        (Collective("all_reduce", 0, 1), "the trace does not tell its group"),
        (Collective("gossip", 0, 1, group=0), "torch.distributed has no gossip"),
        (
            Collective("send", 0, 1, group=0, peer=3),
            "no process plays the rank at its other end",
        ),
        (Collective("recv", 0, 1, group=0, peer=1), ""),
        (Collective("recv", 0, 1, group=0), "no process plays the rank at its other end"),
    ],
)
def test_what_cannot_be_made_has_a_reason(collective: Collective, reason: str) -> None:
    casting = Casting(process=0, processes=2, ranks=(0, 1, 2, 3), job_size=4)

    assert Choice(Groups(0, 4, (WHOLE,)), casting, on_host=True).reason(collective) == reason


def test_messages_of_one_number_are_a_batch_on_a_gpu() -> None:
    groups = Groups(0, 4, (WHOLE,))
    messages = [
        Collective(kind, k, k, group=0, sequence=sequence, peer=1)
        for k, (kind, sequence) in enumerate(
            [("send", 7), ("recv", 7), ("send", 8), ("all_reduce", 8), ("recv", 9), ("send", 9)]
        )
    ]
    casting = Casting(0, 4, (0, 1, 2, 3), 4)

    assert Choice(groups, casting, on_host=False).batches(messages) == {
        0: (0, 1),
        1: (0, 1),
        4: (4, 5),
        5: (4, 5),
    }
    assert Choice(groups, casting, on_host=True).batches(messages) == {}
