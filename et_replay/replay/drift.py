"""Which storages hold the same values in every iteration, or values that are valid by nature."""

from __future__ import annotations

from collections.abc import Iterable

from et_replay.program.program import Call, Program, StorageKind

_VALID_BY_NATURE = frozenset(
    f"aten::{name}"
    for name in (
        "arange argmax argmin argsort cummax cummin kthvalue max median min mode multinomial"
        " nonzero nonzero_numpy randint randint_like randperm sigmoid softmax sort topk"
    ).split()
)
_COPIES = frozenset(
    f"aten::{name}"
    for name in "_to_copy clone contiguous detach lift_fresh reshape to view".split()
)


def steady_storages(program: Program) -> set[int]:
    """Find the storages whose values, once found valid, are valid in every iteration.

    That is so for inputs that no call writes to, for the results of operators that return indices
    of what they were given, and for copies of either. Everything else may drift: PRE_ALLOCATE keeps
    what an iteration wrote into its inputs, a position counter say, for the next.
    """
    calls = [call for operation in program.operations for call in operation.calls]
    written: set[int] = set()
    for call in calls:
        if _writes(call):
            written |= _storages(program, call.outputs) or _storages(program, call.inputs)
    steady = {
        index
        for index, storage in enumerate(program.storages)
        if storage.kind is StorageKind.INPUT and index not in written
    }
    for call in calls:
        given = _storages(program, call.inputs)
        made = _storages(program, call.outputs) - given
        copied = call.node.name in _COPIES and given <= steady
        if copied or call.node.name in _VALID_BY_NATURE:
            steady |= made - written
    return steady


def _writes(call: Call) -> bool:
    return call.node.name.endswith("_") or "!)" in call.node.op_schema.partition("->")[0]


def _storages(program: Program, indices: Iterable[int]) -> set[int]:
    return {program.tensors[index].storage for index in indices if index >= 0}
