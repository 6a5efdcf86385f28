"""Generations: a storage id is a recycled address, each allocation behind it its own storage."""

from __future__ import annotations

from pathlib import Path

from program.programs import lives, operation_ids, program_of, storages_of
from trace_builder import UNDEFINED, T, Typed, node, operator, thread

STORAGE = Typed("<Storage>", "Storage")
OTHER = T(40, 41, 0, 10, 4)


def test_an_id_made_twice_is_two_storages(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 1000, 4)]),
        operator(4, "aten::sum", inputs=[T(5, 6, 0, 1000, 4)]),
        operator(8, "aten::empty", outputs=[T(7, 6, 0, 10, 4)]),
        operator(9, "aten::sum", inputs=[T(7, 6, 0, 10, 4)]),
    )

    assert lives(program) == [(6, "produced", 40, 9), (6, "produced", 4000, 4)]
    assert [each.operation for each in program.storages] == [0, 2]
    assert [each.producer for each in program.storages] == ["aten::empty", "aten::empty"]
    reads = [storages_of(program, program.operations[at].call.inputs) for at in (1, 3)]
    assert reads == [[0], [1]]


def test_the_same_tensor_tuple_made_twice_is_two_storages(tmp_path: Path) -> None:
    tensor = T(5, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::relu", inputs=[OTHER], outputs=[tensor]),
        operator(4, "aten::relu", inputs=[OTHER], outputs=[tensor]),
    )

    assert lives(program) == [
        (6, "produced", 40, 3),
        (6, "produced", 40, 4),
        (41, "input", 40, 4),
    ]


def test_what_is_first_taken_existed_before(tmp_path: Path) -> None:
    program = program_of(
        tmp_path, operator(3, "aten::relu", inputs=[T(5, 6, 0, 10, 4)], outputs=[T(7, 8, 0, 10, 4)])
    )

    assert lives(program) == [(6, "input", 40, 3), (8, "produced", 40, 3)]
    by_id = {each.storage_id: each for each in program.storages}
    assert (by_id[6].operation, by_id[6].producer) == (-1, "")
    assert (by_id[8].operation, by_id[8].producer) == (0, "aten::relu")


def test_an_input_whose_id_is_made_later_is_two_storages(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::sum", inputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "aten::empty", outputs=[T(7, 6, 0, 20, 4)]),
    )

    assert lives(program) == [(6, "input", 40, 3), (6, "produced", 80, 4)]


def test_views_and_in_place_results_are_the_same_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "aten::view", inputs=[T(5, 6, 0, 10, 4)], outputs=[T(7, 6, 0, 10, 4)]),
        operator(8, "aten::mul_", inputs=[T(7, 6, 0, 10, 4)], outputs=[T(7, 6, 0, 10, 4)]),
        operator(9, "aten::to.dtype", inputs=[T(5, 6, 0, 10, 4)], outputs=[T(5, 6, 0, 10, 4)]),
    )

    assert lives(program) == [(6, "produced", 40, 9)]


def test_an_output_given_as_argument_is_the_same_storage(tmp_path: Path) -> None:
    out = T(5, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[out]),
        operator(4, "aten::bmm.out", inputs=[OTHER, OTHER, out], outputs=[out]),
    )

    assert lives(program) == [(6, "produced", 40, 4), (41, "input", 40, 4)]


def test_an_enclosing_operator_that_returns_it_is_the_same_event(tmp_path: Path) -> None:
    made = T(5, 6, 0, 1000, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::ones_like", inputs=[OTHER], outputs=[made]),
        operator(4, "aten::empty_like", 3, inputs=[OTHER], outputs=[made]),
        operator(7, "aten::empty", 4, outputs=[made]),
        operator(8, "aten::fill_", 3, inputs=[made, 1], outputs=[made]),
    )

    assert lives(program) == [(6, "produced", 4000, 8), (41, "input", 40, 4)]
    assert operation_ids(program) == [3]


def test_several_outputs_may_share_a_new_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "ns::halves", outputs=[[T(5, 6, 0, 4, 4), T(7, 6, 4, 4, 4)], T(8, 9, 0, 1, 4)]),
    )

    assert lives(program) == [(6, "produced", 32, 3), (9, "produced", 4, 3)]


def test_an_id_recycled_inside_one_operator_is_two_storages(tmp_path: Path) -> None:
    scratch, small, result = T(5, 6, 0, 1000, 4), T(7, 8, 0, 1, 4), T(9, 6, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(10, "ns::composite", inputs=[OTHER], outputs=[result]),
        operator(11, "aten::empty", 10, outputs=[scratch]),
        operator(12, "aten::sum", 10, inputs=[scratch], outputs=[small]),
        operator(13, "aten::mul", 10, inputs=[small, OTHER], outputs=[result]),
        operator(14, "aten::sum", inputs=[result]),
    )

    assert lives(program) == [
        (6, "produced", 40, 14),
        (6, "produced", 4000, 12),
        (8, "produced", 4, 13),
        (41, "input", 40, 13),
    ]
    temporary = {(each.storage_id, each.size): each.temporary for each in program.storages}
    assert temporary == {(6, 40): False, (6, 4000): True, (8, 4): True, (41, 40): False}
    (index,) = storages_of(program, program.operations[0].call.outputs)
    assert program.storages[index].size == 40


def test_resize_moves_the_tensor_to_a_new_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::resize_", inputs=[T(5, 9, 0, 1000, 4)], outputs=[T(5, 22, 0, 5000, 4)]),
        operator(4, "aten::sum", inputs=[T(5, 22, 0, 5000, 4)]),
    )

    assert lives(program) == [(9, "input", 4000, 3), (22, "produced", 20000, 4)]


def test_set_with_a_storage_argument_is_a_view_of_what_is_there(tmp_path: Path) -> None:
    moved = T(7, 6, 0, 1000, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 1000, 4)]),
        operator(
            4,
            "aten::set_.source_Storage_storage_offset",
            inputs=[T(7, 8, 0, 0, 4), STORAGE, 0, [1000], [1]],
            outputs=[moved],
        ),
        operator(9, "aten::sum", inputs=[moved]),
    )

    assert lives(program) == [(6, "produced", 4000, 9)]


def test_a_sibling_sees_what_was_made_inside_their_operator(tmp_path: Path) -> None:
    local = T(7, 8, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(3, "ns::composite", inputs=[OTHER]),
        operator(4, "aten::exp", 3, inputs=[OTHER], outputs=[local]),
        operator(9, "aten::neg", 3, inputs=[local], outputs=[local]),
        operator(10, "aten::add", 3, inputs=[OTHER, local]),
        operator(11, "aten::sub", 10, inputs=[local]),
    )

    assert lives(program) == [(8, "produced", 40, 11), (41, "input", 40, 10)]


def test_what_an_inner_operator_saves_may_be_used_later(tmp_path: Path) -> None:
    mean = T(7, 8, 0, 10, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::layer_norm", inputs=[OTHER], outputs=[T(9, 10, 0, 10, 4)]),
        operator(
            4, "aten::native_layer_norm", 3, inputs=[OTHER], outputs=[T(9, 10, 0, 10, 4), mean]
        ),
        operator(11, "aten::native_layer_norm_backward", inputs=[OTHER, mean]),
    )

    assert lives(program) == [
        (8, "produced", 40, 11),
        (10, "produced", 40, 4),
        (41, "input", 40, 11),
    ]
    assert not any(each.temporary for each in program.storages if each.storage_id == 8)


def test_undefined_tensors_keep_their_places(tmp_path: Path) -> None:
    first, third = T(5, 6, 0, 10, 4), T(7, 8, 0, 20, 4)
    program = program_of(
        tmp_path,
        operator(
            3,
            "aten::native_layer_norm_backward",
            inputs=[OTHER, UNDEFINED, [UNDEFINED, OTHER], [True, False, True]],
            outputs=[first, UNDEFINED, third],
        ),
        operator(4, "aten::sum", inputs=[third]),
    )

    assert lives(program) == [(6, "produced", 40, 3), (8, "produced", 80, 4), (41, "input", 40, 3)]
    call = program.operations[0].call
    ids = {index: each.storage_id for index, each in enumerate(program.storages)} | {-1: 0}
    assert [ids[at] for at in storages_of(program, call.inputs)] == [41, 0, 0, 41]
    assert [ids[at] for at in storages_of(program, call.outputs)] == [6, 0, 8]
    assert call.inputs[1] == call.inputs[2] == call.outputs[1] == -1


def test_an_operator_whose_inputs_were_lost_still_makes_its_outputs(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::mul", inputs=[OTHER], outputs=[T(20, 21, 0, 6, 4)]),
        operator(
            9,
            "aten::to_padded_tensor",
            0,
            outputs=[T(22, 44, 0, 6, 4)],
            schema="aten::to_padded_tensor(Tensor self, float padding, SymInt[]? output_size=None)"
            " -> Tensor",
        ),
        thread(54),
        operator(55, "aten::sum", 54, inputs=[T(22, 44, 0, 6, 4)]),
    )

    assert operation_ids(program) == [3, 9, 55]
    assert lives(program) == [
        (21, "produced", 24, 3),
        (41, "input", 40, 3),
        (44, "produced", 24, 55),
    ]


def test_compute_and_collectives_share_storages(tmp_path: Path) -> None:
    gradient = T(2, 9, 0, 64, 4)
    program = program_of(
        tmp_path,
        operator(3, "aten::mm", inputs=[OTHER], outputs=[gradient]),
        node(4, "record_param_comms", inputs=[[gradient], 0], outputs=[[gradient]]),
    )

    assert lives(program) == [(9, "produced", 256, 4), (41, "input", 40, 3)]


def test_node_tensor_and_storage_ids_are_three_worlds(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(3, 3, 0, 10, 4)]),
        operator(4, "aten::add", inputs=[T(3, 3, 0, 10, 4)], outputs=[T(5, 4, 0, 10, 4)]),
        operator(5, "aten::sum", inputs=[T(5, 4, 0, 10, 4), T(900, 901, 0, 10, 4)]),
    )

    assert lives(program) == [(3, "produced", 40, 4), (4, "produced", 40, 5), (901, "input", 40, 5)]


def test_tensors_with_recycled_ids_over_inputs_are_inputs(tmp_path: Path) -> None:
    """`ema.data.mul_()` makes a tensor at a recycled address for each weight, without a node."""
    nodes = []
    for k in range(3):
        weight, average = T(20 + k, 30 + k, 0, 100, 4), T(7, 40 + k, 0, 100, 4)
        nodes.append(operator(100 + 2 * k, "aten::mul_", inputs=[average], outputs=[average]))
        nodes.append(operator(101 + 2 * k, "aten::add_", inputs=[average, weight]))
    program = program_of(tmp_path, *nodes)
    assert {storage.kind.value for storage in program.storages} == {"input"}
    assert len(program.storages) == 6


def test_a_storage_that_a_caller_holds_is_not_made_again_below(tmp_path: Path) -> None:
    held, other = T(5, 6, 0, 100, 4), T(7, 8, 0, 100, 4)
    program = program_of(
        tmp_path,
        operator(3, "ns::outer", inputs=[held], outputs=[other]),
        operator(4, "ns::inner", 3, outputs=[held]),
    )
    assert [storage.storage_id for storage in program.storages] == [6, 8]


def test_calls_of_two_threads_make_storages_of_their_own(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "ns::main", outputs=[T(5, 7, 0, 1000, 4)]),
        operator(4, "ns::backward", outputs=[T(6, 7, 0, 1000, 4)], tid=2),
        operator(8, "ns::inside", 3),
    )
    assert [storage.operation for storage in program.storages] == [1, 0]
