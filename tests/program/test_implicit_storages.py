"""Storages that no operator gives out, and labels: who they belong to, and when they begin."""

from __future__ import annotations

from pathlib import Path

from program.programs import lives, program_of
from trace_builder import T, mark, node, operator

OTHER = T(40, 41, 0, 10, 4)


def test_a_tensor_in_another_storage_without_a_node_began_there(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::ones", outputs=[T(5, 6, 0, 1000, 4)]),
        operator(4, "aten::mul_", inputs=[T(5, 9, 0, 1000, 4)], outputs=[T(5, 9, 0, 1000, 4)]),
    )

    assert lives(program) == [(6, "produced", 4000, 3), (9, "implicit", 4000, 4)]
    assert {each.storage_id: each.operation for each in program.storages} == {6: 0, 9: 1}


def test_storages_first_seen_at_a_generated_kernel_began_there(tmp_path: Path) -> None:
    given = T(10, 11, 0, 16, 4)
    fresh = [T(12, 13, 0, 16, 4), T(14, 15, 0, 16, 4)]
    program = program_of(
        tmp_path,
        operator(3, "aten::mm.out", inputs=[given, given, given], outputs=[given]),
        node(4, "triton_poi_fused_0", inputs=[given, *fresh, 16, 0], kernel_backend="triton"),
    )

    assert lives(program) == [
        (11, "input", 64, 4),
        (13, "implicit", 64, 4),
        (15, "implicit", 64, 4),
    ]


def test_a_generated_kernel_may_read_what_an_earlier_step_knew(tmp_path: Path) -> None:
    weight, fresh = T(10, 11, 0, 16, 4), T(12, 13, 0, 16, 4)
    program = program_of(
        tmp_path,
        mark(3, "ProfilerStep#1"),
        operator(4, "aten::relu", 3, inputs=[weight]),
        mark(5, "ProfilerStep#2"),
        node(6, "triton_poi_fused_0", 5, inputs=[weight, fresh], kernel_backend="triton"),
    )

    assert lives(program) == [(11, "input", 64, 6), (13, "implicit", 64, 6)]


def test_what_a_kernel_gives_a_child_without_being_given_it_is_its_own(tmp_path: Path) -> None:
    tensor, scratch = T(5, 6, 0, 10, 4), T(7, 8, 0, 250, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::add_", inputs=[tensor, 1.0], outputs=[tensor]),
        operator(4, "aten::add_", 3, inputs=[tensor, scratch], outputs=[tensor]),
    )

    assert lives(program) == [(6, "input", 40, 4), (8, "implicit", 1000, 4)]
    by_id = {each.storage_id: each for each in program.storages}
    assert (by_id[8].operation, by_id[8].temporary) == (0, True)


def test_scratch_at_a_known_address_is_a_new_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::fill_", 4, inputs=[T(9, 6, 0, 20, 4)], outputs=[T(9, 6, 0, 20, 4)]),
        operator(8, "aten::relu", inputs=[OTHER]),
    )

    assert lives(program) == [
        (6, "implicit", 80, 7),
        (6, "produced", 40, 3),
        (41, "input", 40, 8),
    ]


def test_scratch_of_two_kernels_at_one_address_is_two_storages(tmp_path: Path) -> None:
    scratch = T(9, 6, 0, 20, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::fill_", 4, inputs=[scratch], outputs=[scratch]),
        operator(8, "ns::kernel", inputs=[OTHER]),
        operator(10, "aten::fill_", 8, inputs=[scratch], outputs=[scratch]),
    )

    assert lives(program) == [
        (6, "implicit", 80, 7),
        (6, "implicit", 80, 10),
        (6, "produced", 40, 3),
        (41, "input", 40, 8),
    ]


def test_scratch_followed_by_a_new_storage_is_not_state(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::sum", 4, inputs=[T(9, 6, 0, 20, 4)]),
        operator(8, "aten::empty", outputs=[T(5, 6, 0, 30, 4)]),
        operator(10, "aten::sum", inputs=[T(5, 6, 0, 30, 4)]),
    )

    assert lives(program) == [
        (6, "implicit", 80, 7),
        (6, "produced", 40, 3),
        (6, "produced", 120, 10),
        (41, "input", 40, 4),
    ]


def test_state_that_a_kernel_holds_stays_one_storage(tmp_path: Path) -> None:
    state = T(5, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[state]),
        operator(4, "ns::kernel", inputs=[OTHER]),
        operator(7, "aten::mul", 4, inputs=[OTHER, state]),
        operator(8, "ns::kernel", inputs=[OTHER]),
        operator(9, "aten::mul", 8, inputs=[OTHER, state]),
        operator(10, "aten::sum", inputs=[state]),
    )

    assert lives(program) == [(6, "produced", 40, 10), (41, "input", 40, 9)]


def test_a_kernel_result_filled_by_a_child_is_one_new_storage(tmp_path: Path) -> None:
    old, new = T(5, 6, 0, 10, 4), T(7, 6, 0, 20, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[old]),
        operator(4, "aten::sum", inputs=[old]),
        operator(8, "aten::div", inputs=[OTHER], outputs=[new]),
        operator(9, "aten::div", 8, inputs=[OTHER, 2, new], outputs=[new]),
        operator(10, "aten::sum", inputs=[new]),
    )

    found = [(storage_id, size, last) for storage_id, _, size, last in lives(program)]
    assert sorted(found) == [(6, 40, 4), (6, 80, 10), (41, 40, 9)]


def test_labels_start_no_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        node(3, "CompiledFunction", inputs=[T(5, 6, 0, 10, 4)], outputs=[T(7, 8, 0, 10, 4)]),
        operator(4, "aten::relu", inputs=[OTHER]),
    )

    assert lives(program) == [(41, "input", 40, 4)]


def test_a_label_before_the_first_use_leaves_it_an_input(tmp_path: Path) -> None:
    tensor = T(5, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        node(3, "MulBackward0", inputs=[tensor]),
        operator(4, "aten::mul", 3, inputs=[tensor]),
    )

    assert lives(program) == [(6, "input", 40, 4)]


def test_a_label_does_not_join_two_generations(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        node(4, "torch::autograd::AccumulateGrad", inputs=[T(5, 6, 0, 10, 4)]),
        operator(7, "aten::empty", outputs=[T(5, 6, 0, 20, 4)]),
    )

    assert lives(program) == [(6, "produced", 40, 4), (6, "produced", 80, 7)]
