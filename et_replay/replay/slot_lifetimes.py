"""Prepared operations in, the slots that each empties and the slots that outlive iterations out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from et_replay.program.program import Program, StorageKind
from et_replay.replay.prepared import PreparedOperation


def permanent_slots(program: Program, operations: Iterable[PreparedOperation]) -> set[int]:
    """Find the slots of input storages that a call takes before any call returns them."""
    permanent: set[int] = set()
    returned: set[int] = set()
    for operation in operations:
        for call in operation.calls:
            for slot in call.inputs:
                storage = program.storages[program.tensors[slot].storage]
                if storage.kind is StorageKind.INPUT and slot not in returned:
                    permanent.add(slot)
            returned.update(call.outputs)
    return permanent


def assign_clearing(
    program: Program, operations: Sequence[PreparedOperation], permanent: set[int]
) -> None:
    """Say which slots each operation empties: each tensor's after its last use.

    A storage lives only through its slots, and a flush may have emptied the others. So the tensor
    used last is kept until the storage is used again, and in the end until the storage itself is
    last seen, by a label or by a call that is not executed.
    """
    last: dict[int, int] = {}
    keeper: dict[int, int] = {}
    for k, operation in enumerate(operations):
        for call in operation.calls:
            for slot in (*call.inputs, *call.outputs):
                if slot < 0 or slot in permanent:
                    continue
                storage = program.tensors[slot].storage
                if storage in keeper:
                    last[keeper[storage]] = k
                last[slot] = k
                keeper[storage] = slot
    for storage, slot in keeper.items():
        last[slot] = max(last[slot], program.storages[storage].last_operation)
    cleared: list[list[int]] = [[] for _ in operations]
    for slot, k in last.items():
        cleared[k].append(slot)
    for operation, slots in zip(operations, cleared, strict=True):
        operation.cleared = tuple(slots)
