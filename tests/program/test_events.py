"""Allocation events of a program, one row each, in the pre-allocate and the lazy mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import changes, peak, program_of
from trace_builder import NodeSpec, T, node, operator

from et_replay.program import Mode, allocation_events

PRE, LAZY = Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE
WEIGHT, HIDDEN, RESULT = T(11, 12, 0, 100, 4), T(13, 14, 0, 200, 4), T(15, 16, 0, 300, 4)


def three_operations() -> list[NodeSpec]:
    return [
        operator(3, "aten::empty", outputs=[HIDDEN]),
        operator(4, "aten::mul", inputs=[HIDDEN, WEIGHT], outputs=[RESULT]),
        operator(5, "aten::sum", inputs=[RESULT]),
    ]


def test_modes_have_the_names_of_the_flag() -> None:
    assert [mode.value for mode in Mode] == ["pre", "lazy", "stalloc"]


def test_pre_allocate_keeps_inputs_and_frees_results_after_their_last_use(tmp_path: Path) -> None:
    program = program_of(tmp_path, *three_operations())

    assert changes(program, PRE) == [
        ["+12:400"],
        ["+14:800"],
        ["+16:1200", "-14:800"],
        ["-16:1200"],
        [],
    ]


def test_lazy_makes_inputs_at_their_first_use_and_frees_them_after_the_last(
    tmp_path: Path,
) -> None:
    program = program_of(tmp_path, *three_operations())

    before, first, second, third, after = changes(program, LAZY)
    assert (before, first, third, after) == ([], ["+14:800"], ["-16:1200"], [])
    assert second[:2] == ["+12:400", "+16:1200"]
    assert sorted(second[2:]) == ["-12:400", "-14:800"]


def test_rows_carry_the_node_at_which_they_happen(tmp_path: Path) -> None:
    events = allocation_events(program_of(tmp_path, *three_operations()), PRE)

    assert events.node_id.tolist()[:4] == [-1, 3, 4, 4]
    assert events.steps.tolist() == [1, 2, 4, 5]
    assert events.stream.tolist() == [0] * 5


def test_a_recycled_id_is_freed_before_it_is_made_again(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 1000, 4)]),
        operator(4, "aten::sum", inputs=[T(5, 6, 0, 1000, 4)]),
        operator(8, "aten::empty", outputs=[T(7, 6, 0, 10, 4)]),
        operator(9, "aten::sum", inputs=[T(7, 6, 0, 10, 4)]),
    )

    expected = [[], ["+6:4000"], ["-6:4000"], ["+6:40"], ["-6:40"], []]
    assert changes(program, PRE) == expected
    assert changes(program, LAZY) == expected
    assert peak(allocation_events(program, PRE)) == 4096


@pytest.mark.parametrize("mode", [PRE, LAZY])
def test_temporaries_of_children_come_and_go_inside_their_operation(
    tmp_path: Path, mode: Mode
) -> None:
    scratch, more, result = T(5, 6, 0, 1000, 4), T(7, 8, 0, 500, 4), T(9, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(10, "ns::composite", outputs=[result]),
        operator(11, "aten::empty", 10, outputs=[scratch]),
        operator(12, "aten::exp", 10, inputs=[scratch], outputs=[more]),
        operator(13, "aten::mul", 10, inputs=[more], outputs=[result]),
        operator(14, "aten::sum", inputs=[result]),
    )

    assert changes(program, mode) == [
        [],
        ["+6:4000", "+8:2000", "-6:4000", "+6:40", "-8:2000"],
        ["-6:40"],
        [],
    ]
    assert peak(allocation_events(program, mode)) == 4096 + 2048


def test_an_input_lives_until_the_operator_that_took_it_ends(tmp_path: Path) -> None:
    scratch, inner = T(5, 6, 0, 1000, 4), T(7, 8, 0, 500, 4)
    program = program_of(
        tmp_path,
        operator(10, "ns::composite"),
        operator(11, "aten::empty", 10, outputs=[scratch]),
        operator(12, "ns::part", 10, inputs=[scratch]),
        operator(13, "aten::empty", 12, outputs=[inner]),
        operator(14, "aten::zero_", 12, inputs=[inner], outputs=[inner]),
        operator(15, "aten::empty", 10, outputs=[T(9, 6, 0, 10, 4)]),
    )

    rows = changes(program, PRE)
    assert rows[1][:2] == ["+6:4000", "+8:2000"]
    assert sorted(rows[1][2:4]) == ["-6:4000", "-8:2000"]
    assert rows[1][4:] == ["+6:40", "-6:40"]
    assert (rows[0], rows[2]) == ([], [])


@pytest.mark.parametrize("mode", [PRE, LAZY])
def test_scratch_without_a_node_lives_from_its_first_to_its_last_use(
    tmp_path: Path, mode: Mode
) -> None:
    first, second = T(5, 6, 0, 1000, 4), T(7, 8, 0, 500, 4)
    program = program_of(
        tmp_path,
        operator(10, "ns::kernel"),
        operator(11, "aten::zero_", 10, inputs=[first], outputs=[first]),
        operator(12, "aten::zero_", 10, inputs=[second], outputs=[second]),
    )

    assert changes(program, mode) == [[], ["+6:4000", "-6:4000", "+8:2000", "-8:2000"], []]


def test_a_kernel_result_filled_by_a_child_is_one_allocation(tmp_path: Path) -> None:
    old, new = T(5, 6, 0, 10, 4), T(7, 6, 0, 20, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[old]),
        operator(8, "aten::div", inputs=[WEIGHT], outputs=[new]),
        operator(9, "aten::div", 8, inputs=[WEIGHT, 2, new], outputs=[new]),
        operator(10, "aten::sum", inputs=[new]),
    )

    assert changes(program, PRE)[1:4] == [["+6:40", "-6:40"], ["+6:80"], ["-6:80"]]


def test_an_operation_replayed_as_one_makes_one_allocation(tmp_path: Path) -> None:
    ones = T(5, 6, 0, 1000, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::ones", outputs=[ones]),
        operator(4, "aten::empty", 3, outputs=[ones]),
        operator(7, "aten::fill_", 3, inputs=[ones, 1], outputs=[ones]),
    )

    assert changes(program, PRE) == [[], ["+6:4000", "-6:4000"], []]


def test_a_view_is_no_event_and_keeps_its_storage(tmp_path: Path) -> None:
    base, view = T(5, 6, 0, 10, 4), T(7, 6, 5, 5, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[base]),
        operator(4, "aten::slice", inputs=[base], outputs=[view]),
        operator(8, "aten::empty"),
        operator(9, "aten::sum", inputs=[view]),
    )

    assert changes(program, PRE) == [[], ["+6:40"], [], [], ["-6:40"], []]


def test_a_conversion_that_returns_its_input_is_no_event(tmp_path: Path) -> None:
    tensor = T(5, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[tensor]),
        operator(4, "aten::to.dtype", inputs=[tensor, 6], outputs=[tensor]),
    )

    assert changes(program, PRE) == [[], ["+6:40"], ["-6:40"], []]
    assert changes(program, LAZY) == [[], ["+6:40"], ["-6:40"], []]


def test_resizing_makes_the_new_storage_before_the_old_one_is_freed(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 9, 0, 1000, 4)]),
        operator(4, "aten::resize_", inputs=[T(5, 9, 0, 1000, 4)], outputs=[T(5, 22, 0, 5000, 4)]),
        operator(6, "aten::sum", inputs=[T(5, 22, 0, 5000, 4)]),
    )

    assert changes(program, PRE) == [
        [],
        ["+9:4000"],
        ["+22:20000", "-9:4000"],
        ["-22:20000"],
        [],
    ]


def test_a_storage_swapped_without_a_node_appears_at_its_first_use(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::ones", outputs=[T(5, 6, 0, 1000, 4)]),
        operator(4, "aten::mul_", inputs=[T(5, 9, 0, 1000, 4)], outputs=[T(5, 9, 0, 1000, 4)]),
    )

    assert changes(program, PRE) == [[], ["+6:4000", "-6:4000"], ["+9:4000", "-9:4000"], []]


def test_generated_kernels_allocate_what_nothing_else_made(tmp_path: Path) -> None:
    tensors = [T(at, at + 1, 0, 16, 4) for at in (10, 20, 30, 40)]
    program = program_of(
        tmp_path,
        node(3, "triton_poi_fused_0", inputs=tensors, kernel_backend="triton"),
        node(4, "triton_poi_fused_1", inputs=tensors[:1], kernel_backend="triton"),
    )

    before, first, second, after = changes(program, PRE)
    assert (before, second, after) == ([], ["-11:64"], [])
    assert sorted(first[:4]) == ["+11:64", "+21:64", "+31:64", "+41:64"]
    assert sorted(first[4:]) == ["-21:64", "-31:64", "-41:64"]


def test_a_label_between_operations_holds_a_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::mm", outputs=[HIDDEN]),
        operator(4, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        node(7, "torch::autograd::AccumulateGrad", inputs=[HIDDEN]),
        operator(8, "aten::empty", outputs=[T(5, 10, 0, 10, 4)]),
    )

    rows = changes(program, PRE)
    assert rows[1] == ["+14:800"]
    assert sorted(rows[2]) == ["+6:40", "-14:800", "-6:40"]
    assert rows[2][0] == "+6:40"
    assert rows[3:] == [["+10:40", "-10:40"], []]


def test_only_the_accelerator_has_events_where_there_is_one(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4, "cpu")]),
        operator(4, "aten::to", inputs=[T(5, 6, 0, 10, 4, "cpu")], outputs=[T(7, 8, 0, 10, 4)]),
    )

    assert program.device == "cuda"
    assert changes(program, PRE) == [[], [], ["+8:40", "-8:40"], []]


def test_a_trace_of_the_cpu_has_events_of_the_cpu(tmp_path: Path) -> None:
    program = program_of(tmp_path, operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4, "cpu")]))

    assert program.device == "cpu"
    assert changes(program, PRE) == [[], ["+6:40", "-6:40"], []]


def test_any_accelerator_will_do_whatever_its_index(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4, "xpu:3")]),
        operator(4, "aten::sum", inputs=[T(7, 8, 0, 10, 4, "cpu")]),
    )

    assert program.device == "xpu"
    assert changes(program, PRE) == [[], ["+6:40", "-6:40"], [], []]


def test_lists_of_tensors_are_all_freed(tmp_path: Path) -> None:
    pair = [T(5, 6, 0, 10, 4), T(7, 8, 0, 20, 4)]
    program = program_of(
        tmp_path,
        operator(3, "aten::_foreach_mul", outputs=[pair]),
        operator(4, "aten::_foreach_add_", inputs=[pair, 1.0]),
    )

    assert changes(program, PRE)[1] == ["+6:40", "+8:80"]
    assert sorted(changes(program, PRE)[2]) == ["-6:40", "-8:80"]


def test_lazy_frees_a_weight_that_pre_allocate_keeps(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(10, "aten::mm", inputs=[T(3, 4, 0, 1000, 4)]),
        operator(11, "aten::empty", outputs=[T(5, 6, 0, 1000, 4)]),
    )

    assert peak(allocation_events(program, PRE)) == 2 * 4096
    assert peak(allocation_events(program, LAZY)) == 4096
