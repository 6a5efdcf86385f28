"""Last use: the node after which a tensor, or a storage, is never seen again in the window."""

from __future__ import annotations

from pathlib import Path

from program.programs import lives, program_of
from trace_builder import T, mark, node, operator

from et_replay.program import Program


def last_of_views(program: Program) -> dict[tuple[int, ...], int]:
    """Map the shape of each view to the last node that shows it."""
    last = program.tensor_to_last_node_id
    return {tensor.shape: last[index] for index, tensor in enumerate(program.tensors)}


def test_a_view_dies_before_its_storage(tmp_path: Path) -> None:
    base, view = T(5, 6, 0, 6, 4), T(7, 6, 0, 6, 4, shape=[2, 3])
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[base]),
        operator(4, "aten::view", inputs=[base], outputs=[view]),
        operator(8, "aten::sum", inputs=[view]),
        operator(9, "aten::sum", inputs=[base]),
    )

    assert last_of_views(program) == {(6,): 9, (2, 3): 8}
    assert program.storage_to_last_node_id == [9]


def test_a_view_outlives_its_base(tmp_path: Path) -> None:
    base, view = T(5, 6, 0, 6, 4), T(7, 6, 3, 3, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[base]),
        operator(4, "aten::slice", inputs=[base], outputs=[view]),
        operator(8, "aten::sum", inputs=[view]),
        operator(9, "aten::empty", outputs=[T(5, 10, 0, 6, 4)]),
        operator(11, "aten::sum", inputs=[view]),
    )

    assert last_of_views(program)[(3,)] == 11
    assert lives(program) == [(6, "produced", 24, 11), (10, "produced", 24, 9)]
    base_views = [index for index, each in enumerate(program.tensors) if each.shape == (6,)]
    assert sorted(program.tensor_to_last_node_id[index] for index in base_views) == [4, 9]


def test_a_result_that_nobody_reads_is_last_seen_where_it_was_made(tmp_path: Path) -> None:
    program = program_of(tmp_path, operator(3, "aten::empty", outputs=[T(5, 6, 0, 6, 4)]))

    assert program.storage_to_last_node_id == [3]
    assert program.tensor_to_last_node_id == [3]
    assert (program.storages[0].first_node_id, program.storages[0].last_node_id) == (3, 3)


def test_in_place_operators_use_what_they_change(tmp_path: Path) -> None:
    tensor = T(5, 6, 0, 6, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[tensor]),
        operator(4, "aten::mul_", inputs=[tensor, 2.0], outputs=[tensor]),
        operator(7, "aten::add_", inputs=[tensor, 1], outputs=[tensor]),
    )

    assert lives(program) == [(6, "produced", 24, 7)]
    assert program.tensor_to_last_node_id == [7]


def test_a_recorded_child_is_a_use(tmp_path: Path) -> None:
    tensor = T(5, 6, 0, 6, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::linear", inputs=[tensor]),
        operator(4, "aten::t", 3, inputs=[tensor]),
        operator(7, "aten::mm", 3, inputs=[tensor]),
        operator(8, "aten::empty"),
    )

    assert lives(program) == [(6, "input", 24, 7)]


def test_the_last_node_is_the_largest_id_not_the_last_to_end(tmp_path: Path) -> None:
    made = T(5, 6, 0, 6, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::zeros", outputs=[made]),
        operator(4, "aten::empty", 3, outputs=[made]),
        operator(7, "aten::zero_", 3, inputs=[made], outputs=[made]),
    )

    assert lives(program) == [(6, "produced", 24, 7)]


def test_a_label_that_shows_a_live_storage_is_a_use(tmp_path: Path) -> None:
    gradient = T(5, 6, 0, 6, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::mm", outputs=[gradient]),
        operator(4, "aten::relu"),
        node(7, "torch::autograd::AccumulateGrad", inputs=[gradient]),
        operator(8, "aten::relu"),
    )

    assert lives(program) == [(6, "produced", 24, 7)]


def test_lists_and_tuples_of_tensors_are_uses(tmp_path: Path) -> None:
    one, two = T(5, 6, 0, 6, 4), T(7, 8, 0, 2, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::_foreach_add_", inputs=[[one, two], 1.0]),
        operator(4, "aten::cat", inputs=[(one, [two]), 0], outputs=[[T(9, 10, 0, 8, 4)]]),
    )

    assert lives(program) == [(6, "input", 24, 4), (8, "input", 8, 4), (10, "produced", 32, 4)]


def test_each_generation_has_its_own_last_node(tmp_path: Path) -> None:
    first, second = T(5, 6, 0, 100, 4), T(5, 6, 0, 100, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[first]),
        operator(4, "aten::sum", inputs=[first]),
        operator(7, "aten::empty", outputs=[second]),
        operator(8, "aten::sum", inputs=[second]),
    )

    assert lives(program) == [(6, "produced", 400, 4), (6, "produced", 400, 8)]
    assert program.tensor_to_last_node_id == [4, 8]


def test_uses_outside_the_window_do_not_count(tmp_path: Path) -> None:
    weight = T(5, 6, 0, 100, 4)
    program = program_of(
        tmp_path,
        mark(3, "ProfilerStep#1"),
        operator(4, "aten::relu", 3, inputs=[weight]),
        mark(7, "ProfilerStep#2"),
        operator(8, "aten::relu", 7, inputs=[weight]),
        operator(9, "aten::relu", inputs=[weight]),
        window="2",
    )

    assert lives(program) == [(6, "input", 400, 8)]
    assert program.storages[0].first_node_id == 8
