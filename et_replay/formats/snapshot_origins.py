"""What storages are for, by their makers and lifetimes: events and stacks in, origins out.

A storage lives on if it outlives what its phase is for: a gradient the backward pass, up to the
next allocation of an optimizer; an activation the forward pass, up to one of a backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from et_replay.events import Action, AllocationEvents, Int64Array
from et_replay.formats.snapshot_frames import FRAMELESS, Phase, Stack
from et_replay.origins import MemoryClass, Origin

CLASS_RULE = (
    "The recorded category counts where there is one; else the innermost frame that tells:"
    " storages made under torch.optim are optimizer state if never freed, those of a backward pass"
    " gradients if they live to the next optimizer step or the end, those of a forward pass"
    " activations if they live into the backward pass or are never freed, each a temporary"
    " otherwise, and those made when modules are built, moved or loaded are weights; what has no"
    " frame while others have is taken to be of a backward pass."
)

_FREES = (Action.FREE, Action.FREE_REQUESTED, Action.FREE_COMPLETED)


def find_origins(
    events: AllocationEvents, numbers: Mapping[int, int], stacks: Sequence[Stack]
) -> dict[int, Origin]:
    """Return the origins of the storages whose stack has a number, equal ones as one object."""
    if all(stacks[number] is FRAMELESS for number in numbers.values()):
        return {}
    storages = np.fromiter(numbers.keys(), np.int64, len(numbers))
    shown = np.fromiter(numbers.values(), np.int64, len(numbers))
    classes = _classes(events, storages, shown, stacks)
    by_value: dict[Origin, Origin] = {}
    by_stack: dict[tuple[int, MemoryClass], Origin] = {}
    origins = {}
    for (storage, number), told in zip(numbers.items(), classes, strict=True):
        origin = by_stack.get((number, told))
        if origin is None:
            stack = stacks[number]
            origin = Origin(stack.maker, stack.within, told)
            origin = by_stack[number, told] = by_value.setdefault(origin, origin)
        origins[storage] = origin
    return origins


def _classes(
    events: AllocationEvents, storages: Int64Array, shown: Int64Array, stacks: Sequence[Stack]
) -> list[MemoryClass]:
    """Return the class of each storage, whose stack is the one `shown`."""
    made, freed = _lifetimes(events, storages)
    kept = freed == len(events)
    by_phase = {phase: _shows(stacks, shown, phase) for phase in Phase}
    steps = _next(made[by_phase[Phase.OPTIMIZER]], made, len(events))
    backwards = _next(made[by_phase[Phase.BACKWARD]], made, len(events))
    lives_on = {
        Phase.OPTIMIZER: kept,
        Phase.BACKWARD: kept | (freed > steps),
        Phase.FORWARD: kept | (freed > backwards),
        Phase.SETUP: np.ones_like(kept),
    }
    members = list(MemoryClass)
    codes = np.full(len(storages), members.index(MemoryClass.UNKNOWN))
    for phase, chosen in by_phase.items():
        codes[chosen & lives_on[phase]] = members.index(phase.value)
        codes[chosen & ~lives_on[phase]] = members.index(MemoryClass.TEMPORARY)
    recorded = [members.index(stack.category) if stack.category else -1 for stack in stacks]
    categories = np.array(recorded)[shown]
    return [members[code] for code in np.where(categories >= 0, categories, codes).tolist()]


def _lifetimes(events: AllocationEvents, storages: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the events that make and free each storage: -1 and len(events) if there are none."""
    count = max(int(storages.max()), int(events.storage.max(initial=-1))) + 1
    made, freed = np.full(count, -1), np.full(count, len(events))
    allocations = np.flatnonzero(events.action == Action.ALLOC)
    made[events.storage[allocations]] = allocations
    frees = np.flatnonzero(np.isin(events.action, _FREES))
    np.minimum.at(freed, events.storage[frees], frees)
    return made[storages], freed[storages]


def _shows(stacks: Sequence[Stack], shown: Int64Array, phase: Phase) -> npt.NDArray[np.bool_]:
    return np.array([stack.phase is phase for stack in stacks])[shown]


def _next(moments: Int64Array, after: Int64Array, end: int) -> Int64Array:
    """Return the first moment behind each one of `after`; `end` where there is none."""
    ordered = np.append(np.sort(moments[moments >= 0]), end)
    following = np.searchsorted(ordered, after, side="right").clip(max=len(ordered) - 1)
    return ordered.take(following)
