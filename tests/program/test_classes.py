"""What storages are for, and who made them, in hand-written training and inference steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import program_of
from trace_builder import NodeSpec, T, mark, node, operator, thread

from et_replay.formats import open_trace
from et_replay.origins import MemoryClass, Origin
from et_replay.program import Program, build_program, classify, origins
from et_replay.program.part import part_of
from et_replay.program.surroundings import enclosing_annotations

IMAGE, WEIGHT, MOMENTUM = T(11, 12, 0, 8, 4), T(13, 14, 0, 8, 4), T(15, 16, 0, 8, 4)
HIDDEN, LOSS = T(21, 22, 0, 8, 4), T(23, 24, 0, 8, 4)
GRADIENT, FLOWING = T(25, 26, 0, 8, 4), T(27, 28, 0, 8, 4)
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
STEP = "Optimizer.step#SGD.step"
ADD_IN_PLACE = (
    "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
)


def forward() -> list[NodeSpec]:
    return [
        operator(4, "aten::mm", inputs=[IMAGE, WEIGHT], outputs=[HIDDEN]),
        operator(5, "aten::sum", inputs=[HIDDEN], outputs=[LOSS]),
    ]


def backward() -> list[NodeSpec]:
    return [
        thread(30, tid=2),
        node(31, BACKWARD, 30, tid=2),
        operator(32, "aten::expand", 31, [LOSS], [FLOWING], tid=2),
        operator(33, "aten::mm", 31, [FLOWING, HIDDEN], [GRADIENT], tid=2),
    ]


def optimizer(parent: int = 2) -> list[NodeSpec]:
    return [
        operator(41, "aten::_foreach_add_", parent, [[MOMENTUM], [GRADIENT]], schema=ADD_IN_PLACE),
        operator(42, "aten::_foreach_add_", parent, [[WEIGHT], [MOMENTUM]], schema=ADD_IN_PLACE),
    ]


def classes(program: Program) -> dict[int, MemoryClass]:
    found = classify(program)
    return {each.storage_id: found[index] for index, each in enumerate(program.storages)}


TRAINED = {
    12: MemoryClass.INPUT,
    14: MemoryClass.WEIGHT,
    16: MemoryClass.OPTIMIZER_STATE,
    22: MemoryClass.ACTIVATION,
    24: MemoryClass.ACTIVATION,
    26: MemoryClass.GRADIENT,
    28: MemoryClass.TEMPORARY,
}


def test_a_training_step_has_every_class(tmp_path: Path) -> None:
    program = program_of(tmp_path, *forward(), *backward(), mark(40, STEP), *optimizer(40))

    assert classes(program) == TRAINED


def test_list_calls_after_the_backward_pass_are_the_optimizer_of_a_trace_without_marks(
    tmp_path: Path,
) -> None:
    assert classes(program_of(tmp_path, *forward(), *backward(), *optimizer())) == TRAINED


def test_a_hook_on_the_thread_of_the_backward_pass_belongs_to_it(tmp_path: Path) -> None:
    hook = operator(34, "aten::mul", 30, [GRADIENT, HIDDEN], tid=2)

    program = program_of(tmp_path, *forward(), *backward(), hook, mark(40, STEP), *optimizer(40))

    assert classes(program)[22] is MemoryClass.ACTIVATION


def test_a_gradient_kept_from_the_step_before_is_one(tmp_path: Path) -> None:
    zero = [
        mark(34, "Optimizer.zero_grad#SGD.zero_grad"),
        operator(35, "aten::zero_", 34, [GRADIENT], [GRADIENT]),
    ]
    steps = [spec for spec in backward() if spec.id != 33]
    add = operator(36, "aten::add_", 31, [GRADIENT, FLOWING], [GRADIENT], tid=2)

    program = program_of(tmp_path, *forward(), *zero, *steps, add, mark(40, STEP), *optimizer(40))

    assert classes(program)[26] is MemoryClass.GRADIENT


def test_in_inference_the_parameters_of_operators_are_weights(tmp_path: Path) -> None:
    indices = T(51, 52, 0, 8, 8, dtype="long int")
    program = program_of(
        tmp_path,
        operator(4, "aten::embedding", inputs=[MOMENTUM, indices], outputs=[HIDDEN]),
        operator(5, "aten::linear", inputs=[HIDDEN, WEIGHT, GRADIENT], outputs=[LOSS]),
        operator(6, "aten::add", inputs=[LOSS, IMAGE]),
    )

    assert classes(program) == {
        16: MemoryClass.WEIGHT,
        52: MemoryClass.INPUT,
        22: MemoryClass.TEMPORARY,
        14: MemoryClass.WEIGHT,
        26: MemoryClass.WEIGHT,
        24: MemoryClass.TEMPORARY,
        12: MemoryClass.INPUT,
    }


def test_what_is_read_out_of_place_by_the_optimizer_alone_is_its_state(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        *forward(),
        *backward(),
        mark(40, STEP),
        operator(41, "aten::lerp.out", 40, [GRADIENT, MOMENTUM, WEIGHT], [WEIGHT],
                 schema="aten::lerp.out(Tensor self, Tensor end, *, Tensor(a!) out) -> Tensor(a!)"),
    )  # fmt: skip

    assert classes(program) == TRAINED


def test_origins_name_the_operation_and_the_annotations_around_it(tmp_path: Path) -> None:
    nodes = [*forward(), *backward(), mark(40, STEP), *optimizer(40)]
    program = program_of(tmp_path, *nodes)

    found = {program.storages[index].storage_id: each for index, each in origins(program).items()}

    assert found[14] == Origin("input of aten::mm", (), MemoryClass.WEIGHT)
    assert found[16] == Origin("input of aten::_foreach_add_", (STEP,), MemoryClass.OPTIMIZER_STATE)
    assert found[26] == Origin("aten::mm", (BACKWARD,), MemoryClass.GRADIENT)


def test_what_storages_of_a_part_are_for_is_told_by_the_whole_and_the_rest_by_the_part(
    tmp_path: Path,
) -> None:
    reduced = operator(34, "c10d::allreduce_", 31, [[GRADIENT]], tid=2)
    program = program_of(tmp_path, *forward(), *backward(), reduced, mark(40, STEP), *optimizer(40))
    part = part_of(program, lambda call: call.node.id in (34, 42))

    storages = enumerate(part.storages)
    held = {each.storage_id: index for index, each in storages if each.size}
    found = origins(part)
    assert {storage: found[index] for storage, index in held.items()} == {
        26: Origin("c10d::allreduce_", (BACKWARD,), MemoryClass.GRADIENT),
        14: Origin("input of aten::_foreach_add_", (STEP,), MemoryClass.WEIGHT),
        16: Origin("input of aten::_foreach_add_", (STEP,), MemoryClass.OPTIMIZER_STATE),
    }
    assert enclosing_annotations(part) == [(BACKWARD,), (STEP,)]


@pytest.mark.parametrize(
    ("name", "parameters", "states"), [("resnet", 161, 161), ("gpt2", 76, 152), ("moe", 191, 382)]
)
def test_recorded_jobs_have_a_gradient_for_each_weight(
    name: str, parameters: int, states: int, shared_data: Path
) -> None:
    program = build_program(open_trace(shared_data / "workloads" / f"{name}_et.json.gz"))
    on_device = map(program.on_device, program.storages)

    found = [each for each, here in zip(classify(program), on_device, strict=True) if here]

    assert found.count(MemoryClass.WEIGHT) == found.count(MemoryClass.GRADIENT) == parameters
    assert found.count(MemoryClass.OPTIMIZER_STATE) == states
