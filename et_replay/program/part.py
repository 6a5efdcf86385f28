"""A program and the calls of it to keep in, a program of these alone out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from et_replay.program.program import Call, Operation, Program, Storage, StorageKind


def part_of(program: Program, keep: Callable[[Call], bool]) -> Program:
    """Leave only the calls that `keep` says yes to, and the storages that these take or return.

    A storage that an operation made which is left out appears at the first one that takes it. One
    that no operation touches any more takes no memory.
    """
    places: dict[int, int] = {}
    operations: list[Operation] = []
    for k, operation in enumerate(program.operations):
        kept = tuple(call for call in operation.calls if keep(call))
        if kept:
            places[k] = len(operations)
            whole = operation.calls == (operation.call,) or len(kept) == len(operation.calls)
            operations.append(Operation(operation.call if whole else kept[0], kept))
    if sum(len(operation.calls) for operation in operations) == sum(
        len(operation.calls) for operation in program.operations
    ):
        return program
    uses = _uses(program, operations)
    return replace(
        program,
        operations=operations,
        storages=[
            _moved(storage, uses.get(index, []), places, len(operations))
            for index, storage in enumerate(program.storages)
        ],
        whole=program.whole or program,
    )


def places_in_whole(program: Program) -> list[int]:
    """List which operation of the whole program each one of a part of it is, or is a part of."""
    whole = program.whole or program
    places = {
        id(call): k
        for k, operation in enumerate(whole.operations)
        for call in (operation.call, *operation.calls)
    }
    return [places[id(operation.call)] for operation in program.operations]


def _uses(program: Program, operations: list[Operation]) -> dict[int, list[int]]:
    uses: dict[int, list[int]] = {}
    for k, operation in enumerate(operations):
        for call in (operation.call, *operation.calls):
            for storage in program.storages_of((*call.inputs, *call.outputs)):
                uses.setdefault(storage, []).append(k)
    return uses


def _moved(storage: Storage, uses: list[int], places: dict[int, int], count: int) -> Storage:
    """Let a storage live among the operations that are left."""
    made = places.get(storage.operation)
    if made is None and not uses:
        return replace(storage, size=0, operation=-1, first_operation=0, last_operation=0)
    first = min(uses, default=made or 0)
    first = first if made is None else min(first, made)
    last = max([*uses, first, _place(places, storage.last_operation, count)])
    kind, born = storage.kind, storage.born
    if kind is not StorageKind.INPUT and made is None:
        kind, born = StorageKind.IMPLICIT, 0
    return replace(
        storage,
        kind=kind,
        operation=-1 if kind is StorageKind.INPUT else first,
        born=born,
        first_operation=first,
        last_operation=last,
        temporary=storage.temporary and made is not None and last == made,
    )


def _place(places: dict[int, int], operation: int, count: int) -> int:
    """Return the place of the last operation left that is not behind `operation`."""
    while operation >= 0 and operation not in places:
        operation -= 1
    return min(places.get(operation, 0), count - 1)
