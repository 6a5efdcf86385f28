"""A program in, what each of its storages is for and who made it out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

from et_replay.execution_trace import tensors
from et_replay.origins import MemoryClass, Origin
from et_replay.program.argument_names import arguments_in
from et_replay.program.part import places_in_whole
from et_replay.program.program import Operation, Program, Storage, StorageKind
from et_replay.program.surroundings import Pass, enclosing_annotations, passes

CLASS_RULE = (
    "Told from who uses a storage: the optimizer alone (its state), the optimizer and the forward"
    " pass (weights), backward pass then optimizer (gradients), forward then backward pass"
    " (activations); where no optimizer runs, floating-point parameters of products, convolutions,"
    " norms and embeddings are weights."
)

_PARAMETERS = {
    **dict.fromkeys(("aten::mm", "aten::matmul"), (1,)),
    **dict.fromkeys(("aten::linear", "aten::layer_norm", "aten::native_layer_norm"), (1, 2)),
    **dict.fromkeys(("aten::group_norm", "aten::native_group_norm", "aten::rms_norm"), (1, 2)),
    **dict.fromkeys(("aten::batch_norm", "aten::native_batch_norm"), (1, 2, 3, 4)),
    **dict.fromkeys(("aten::instance_norm", "aten::cudnn_batch_norm"), (1, 2, 3, 4)),
    **dict.fromkeys(("aten::conv1d", "aten::conv2d", "aten::conv3d"), (1, 2)),
    **dict.fromkeys(("aten::convolution", "aten::cudnn_convolution"), (1, 2)),
    **dict.fromkeys(("aten::addmm", "aten::_addmm_activation"), (0, 2)),
    **dict.fromkeys(("aten::embedding", "aten::embedding_bag", "aten::_embedding_bag"), (0,)),
}
"""Which tensor arguments hold parameters; products of batches multiply activations."""


def classify(program: Program) -> list[MemoryClass]:
    """Tell what each storage of `program` is for, as CLASS_RULE says, by all of the program."""
    program = program.whole or program
    return _classify(program, passes(program, enclosing_annotations(program)))


def origins(program: Program) -> dict[int, Origin]:
    """Name the operation that makes each storage, or of an input the first that uses it.

    Of a part of a program these are its own operations, but what a storage is for the whole tells.
    """
    whole = program.whole or program
    of_whole = enclosing_annotations(whole)
    classes = _classify(whole, passes(whole, of_whole))
    within = [of_whole[place] for place in places_in_whole(program)]
    found = {}
    for index, (storage, memory_class) in enumerate(zip(program.storages, classes, strict=True)):
        given = storage.kind is StorageKind.INPUT
        k = storage.first_operation if given else storage.operation
        if 0 <= k < len(within):
            name = program.operations[k].node.name
            maker = f"input of {name}" if given else name
            found[index] = Origin(maker, within[k], memory_class)
    return found


def _classify(program: Program, of_operation: Sequence[Pass]) -> list[MemoryClass]:
    used: dict[int, set[Pass]] = defaultdict(set)
    taken: set[int] = set()
    changed: set[int] = set()
    for operation, its_pass in zip(program.operations, of_operation, strict=True):
        call = operation.call
        for index in program.storages_of((*call.inputs, *call.outputs)):
            used[index].add(its_pass)
        if its_pass is Pass.OPTIMIZER:
            taken |= program.storages_of(call.inputs)
            changed |= program.storages_of(_changed_tensors(operation))
    trained = {index for index in changed if Pass.FORWARD in used[index]}
    if Pass.OPTIMIZER not in of_operation:
        trained = set(_parameters(program))
    return [
        MemoryClass.WEIGHT
        if index in trained
        else _class_of_input(used[index], index in taken)
        if storage.kind is StorageKind.INPUT
        else _class_of_produced(storage, of_operation, index in taken)
        for index, storage in enumerate(program.storages)
    ]


def _class_of_input(used: set[Pass], taken_by_optimizer: bool) -> MemoryClass:
    if used == {Pass.OPTIMIZER}:
        return MemoryClass.OPTIMIZER_STATE
    # Gradients that zero_grad(set_to_none=False) has kept from the step before.
    if taken_by_optimizer and Pass.BACKWARD in used:
        return MemoryClass.GRADIENT
    return MemoryClass.INPUT


def _class_of_produced(
    storage: Storage, of_operation: Sequence[Pass], taken_by_optimizer: bool
) -> MemoryClass:
    born = of_operation[storage.operation]
    if taken_by_optimizer and born is not Pass.OPTIMIZER:
        return MemoryClass.GRADIENT
    if born is Pass.FORWARD and of_operation[storage.last_operation] is Pass.BACKWARD:
        return MemoryClass.ACTIVATION
    return MemoryClass.TEMPORARY


def _parameters(program: Program) -> Iterator[int]:
    """Yield the inputs that operators of inference take as their parameters."""
    for operation in program.operations:
        for call in (operation.call, *operation.calls):
            for position in _PARAMETERS.get(call.node.name, ()):
                tensor = call.inputs[position] if position < len(call.inputs) else -1
                if tensor < 0 or not _is_floating_point(program.tensors[tensor].dtype):
                    continue
                storage = program.tensors[tensor].storage
                if program.storages[storage].kind is StorageKind.INPUT:
                    yield storage


def _is_floating_point(dtype: str) -> bool:
    return dtype == "double" or any(part in dtype.lower() for part in ("float", "half"))


def _changed_tensors(operation: Operation) -> list[int]:
    """List the tensors that the operation's schema says it writes to, as `Tensor(a!)[] self`."""
    node, inputs = operation.node, iter(operation.call.inputs)
    written = _written_arguments(node.op_schema)
    changed = []
    for position, value in enumerate(node.inputs):
        given = [next(inputs) for _ in tensors((value,))]
        if position in written:
            changed += given
    return changed


@lru_cache(maxsize=1024)
def _written_arguments(schema: str) -> frozenset[int]:
    """Number the arguments of a schema whose alias set ends in `!`."""
    arguments = enumerate(arguments_in(schema))
    return frozenset(position for position, argument in arguments if "!" in argument)
