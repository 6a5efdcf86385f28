"""A program and a tensor allocation mode in, what each operation allocates and frees out."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from et_replay.events import Action
from et_replay.program.program import Operation, Program, StorageKind


class Mode(enum.Enum):
    """The tensor allocation modes."""

    PRE_ALLOCATE = "pre"
    """Inputs before the first iteration and through all of them; the rest from birth to last use.
    """
    LAZY_ALLOCATE = "lazy"
    """Inputs too only from right before their first use to their last."""
    STALLOC_PLANNED = "stalloc"
    """The lifetimes of LAZY_ALLOCATE, at addresses chosen ahead of time."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens around one operation to the device's storages, by index.

    `needs` must be there when the operation begins; those of them that appear now are its
    `arrivals`. `inside` holds births, and the births and deaths of temporaries, in order.
    `departures` are freed once it has run.
    """

    needs: tuple[int, ...]
    arrivals: tuple[int, ...]
    inside: tuple[tuple[Action, int], ...]
    departures: tuple[int, ...]


def schedule(program: Program, mode: Mode) -> list[Step]:
    """Work out the step of every operation of `program` in `mode`."""
    counted = [program.on_device(storage) for storage in program.storages]
    keep_inputs = mode is Mode.PRE_ALLOCATE
    arrivals: dict[int, list[int]] = defaultdict(list)
    departures: dict[int, list[int]] = defaultdict(list)
    inside: dict[int, list[tuple[int, Action, int]]] = defaultdict(list)
    for index, storage in enumerate(program.storages):
        if not counted[index]:
            continue
        if storage.kind is not StorageKind.INPUT:
            inside[storage.operation].append((storage.born, Action.ALLOC, index))
        elif not keep_inputs:
            arrivals[storage.first_operation].append(index)
        if storage.temporary:
            inside[storage.last_operation].append((storage.died, Action.FREE, index))
        elif storage.kind is not StorageKind.INPUT or not keep_inputs:
            departures[storage.last_operation].append(index)
    return [
        Step(
            needs=tuple(_needs(program, k, operation, counted)),
            arrivals=tuple(arrivals.get(k, ())),
            inside=tuple((action, index) for _, action, index in sorted(inside.get(k, ()))),
            departures=tuple(departures.get(k, ())),
        )
        for k, operation in enumerate(program.operations)
    ]


def _needs(
    program: Program, k: int, operation: Operation, counted: Sequence[bool]
) -> Iterable[int]:
    tensors = dict.fromkeys((*operation.call.inputs, *operation.call.outputs))
    for call in operation.calls:
        tensors.update(dict.fromkeys(call.inputs))
    storages = dict.fromkeys(program.tensors[t].storage for t in tensors if t >= 0)
    return (s for s in storages if counted[s] and program.storages[s].operation < k)
