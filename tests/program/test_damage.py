"""What of a window is damaged, in sentences; of an intact one there are none."""

from __future__ import annotations

from pathlib import Path

from program.programs import operation_ids, program_of
from trace_builder import NONE, T, Typed, mark, node, operator

X, Y = T(11, 11, 0, 6, 4), T(12, 12, 0, 6, 4)
BROKEN = Typed([13, 13, 0, -5, 4, "cuda:0"], "Tensor(float)", [6], [1])


def test_damaged_values_are_counted_in_lists_too_and_the_first_is_named(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::relu", 2, [X], [Y]),
        operator(4, "aten::cat", 2, [[X, BROKEN], Typed("abc", "Int")], [Y]),
        operator(5, "aten::relu", 2, [Y], [BROKEN]),
    )

    assert program.notes == (
        "3 values are damaged and count as unknown (first: Tensor(float) in node 4, aten::cat).",
    )


def test_only_the_window_counts(tmp_path: Path) -> None:
    nodes = [
        mark(3, "ProfilerStep#1"),
        operator(4, "aten::relu", 3, [X], [BROKEN]),
        mark(5, "ProfilerStep#2"),
        operator(6, "aten::relu", 5, [Typed("x", "Int")], [Y]),
    ]

    assert program_of(tmp_path, *nodes).notes == (
        "1 value is damaged and counts as unknown (first: Int in node 6, aten::relu).",
    )
    assert program_of(tmp_path, *nodes, window="1").notes == (
        "1 value is damaged and counts as unknown (first: Tensor(float) in node 4, aten::relu).",
    )


def test_calls_with_results_and_without_a_schema_are_told(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::relu", 2, [X], [Y]),
        node(4, "aten::relu", 2, [Y], [X]),
        node(5, "aten::add", 2, [X, Y, 1], [X]),
    )

    assert operation_ids(program) == [3]
    assert program.notes == (
        "2 nodes have lost their schemas and count as no operator (first: node 4, aten::relu).",
    )


def test_what_never_has_a_schema_or_is_only_named_is_not_damaged(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        node(3, "autograd::engine::evaluate_function: ReluBackward0", 2, [X]),
        node(4, "aten::relu", 2, [X]),
        node(5, "torch::autograd::AccumulateGrad", 2, [X], [Y]),
        node(6, "record_param_comms", 2, [X], [X]),
        node(7, "triton_poi_0", 2, [X], [X], kernel_backend="triton"),
        operator(8, "aten::normal_", 2, [X, Typed("<Generator>", "Generator"), NONE], [X]),
    )

    assert program.notes == ()
