"""Collectives: the process group holds their buffers until they are complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import changes, lives, program_of
from trace_builder import NodeSpec, T, node, operator

from et_replay.program import Mode

GRADIENT, OTHER = T(11, 11, 0, 100, 4), T(12, 12, 0, 10, 4)


def allreduce(id: int, number: object, tensor: object = GRADIENT, **record: str) -> list[NodeSpec]:
    """Return an all-reduce as the observer writes it, with the record that names its number."""
    return [
        operator(id, "c10d::allreduce_", 2, [[tensor], -1], [[tensor]]),
        node(
            id + 1,
            "record_param_comms",
            id,
            [[tensor], number, ("0", "default_pg"), 0, "allreduce"],
            [[tensor]],
            **record,
        ),
    ]


def wait(id: int, number: object) -> NodeSpec:
    return node(id, "record_param_comms", 2, [number, ("", ""), 0, "wait", [], []])


def gradient_then(*nodes: NodeSpec) -> list[NodeSpec]:
    return [operator(3, "aten::mm", outputs=[GRADIENT]), *nodes]


def relu(id: int) -> NodeSpec:
    return operator(id, "aten::relu", inputs=[OTHER], outputs=[OTHER])


@pytest.mark.parametrize(
    ("number", "waited", "last"),
    [
        (49, 49, 8),
        ((49, False), (49, False), 8),
        (49, 48, 5),  # a wait for another one: nothing shows that this one is asynchronous
    ],
)
def test_buffers_live_until_the_wait_with_the_number_of_the_collective(
    tmp_path: Path, number: object, waited: object, last: int
) -> None:
    nodes = gradient_then(*allreduce(4, number), relu(7), wait(8, waited), relu(9))

    program = program_of(tmp_path, *nodes)

    assert lives(program)[0] == (11, "produced", 400, last)


def test_a_buffer_is_freed_after_the_wait(tmp_path: Path) -> None:
    nodes = gradient_then(*allreduce(4, 1), relu(7), wait(8, 1), relu(9))

    found = changes(program_of(tmp_path, *nodes), Mode.PRE_ALLOCATE)

    assert found == [["+12:40"], ["+11:400"], [], [], ["-11:400"], [], []]


@pytest.mark.parametrize(
    ("attributes", "last"),
    [({"is_asynchronized_op": "True"}, 9), ({"is_asynchronized_op": "False"}, 5), ({}, 5)],
)
def test_without_a_wait_only_what_is_marked_asynchronous_is_held_to_the_end(
    tmp_path: Path, attributes: dict[str, str], last: int
) -> None:
    nodes = gradient_then(*allreduce(4, 1, **attributes), relu(7), relu(9))

    program = program_of(tmp_path, *nodes)

    assert lives(program)[0] == (11, "produced", 400, last)


def test_one_that_is_marked_synchronous_is_complete_whatever_waits_for_it(tmp_path: Path) -> None:
    nodes = gradient_then(*allreduce(4, 1, is_asynchronized_op="False"), relu(7), wait(8, 1))

    program = program_of(tmp_path, *nodes)

    assert lives(program)[0] == (11, "produced", 400, 5)


def test_a_functional_collective_holds_its_input_until_its_result_is_waited_for(
    tmp_path: Path,
) -> None:
    result = T(13, 13, 0, 200, 4)
    program = program_of(
        tmp_path,
        *gradient_then(
            operator(4, "_c10d_functional::all_gather_into_tensor", 2, [GRADIENT, 2], [result]),
            relu(5),
            operator(6, "_c10d_functional::wait_tensor", 2, [result], [result]),
            relu(7),
        ),
    )

    assert lives(program) == [
        (11, "produced", 400, 6),
        (12, "input", 40, 7),
        (13, "produced", 800, 6),
    ]


def test_an_address_that_is_seen_with_another_storage_was_free_by_then(tmp_path: Path) -> None:
    nodes = gradient_then(
        *allreduce(4, 1),
        relu(7),
        operator(8, "aten::mm", outputs=[T(14, 11, 0, 50, 4)]),
        wait(9, 1),
    )

    program = program_of(tmp_path, *nodes)

    assert lives(program)[:2] == [(11, "produced", 200, 8), (11, "produced", 400, 7)]


def test_hundred_collectives_that_are_waited_for_hold_one_buffer_at_a_time(tmp_path: Path) -> None:
    nodes = []
    for k in range(100):
        tensor = T(1000 + k, 2000 + k, 0, 100, 4)
        nodes += [
            operator(10 * k + 10, "aten::mm", outputs=[tensor]),
            *allreduce(10 * k + 11, k, tensor),
            wait(10 * k + 13, k),
        ]

    found = changes(program_of(tmp_path, *nodes), Mode.PRE_ALLOCATE)

    assert found[1:4] == [["+2000:400"], [], ["-2000:400"]]
    assert found[4:7] == [["+2001:400"], [], ["-2001:400"]]
