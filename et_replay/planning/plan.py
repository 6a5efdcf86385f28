"""Allocation events in, an address for every storage out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from et_replay.buffers import Buffers
from et_replay.errors import PlanError
from et_replay.events import (
    AllocationEvents,
    Int64Array,
    MemoryHistory,
    PlanColumns,
    SegmentState,
)
from et_replay.planning.cycle import CyclicPacking, plan_cycle
from et_replay.planning.lifetimes import ALIGNMENT, Lifetimes, StorageClass, lifetimes
from et_replay.planning.packing import FAST, Effort, Packing, find_fault, plan_buffers
from et_replay.planning.steady import Repetition, SteadyState, steady_state

NO_OFFSET = -1
LEFT_OUT = (StorageClass.PRIVATE, StorageClass.UNMATCHED, StorageClass.VARYING)
"""The classes of storages that get no address."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Offsets in one arena for the storages of `lifetimes`, -1 for those that it leaves out.

    `lower_bound_bytes` is the most that lives at once, summed over streams where there are several.
    `iteration` are the ticks [begin, end) of the one that repeats, if the plan was made for that.
    `mode` and `window` are the tensor allocation mode and the window with which an execution trace
    was read, "" where that is not known; `of_table` says that the storages are the buffers of a
    table, at its own ticks. `notes` says in sentences what the plan does not cover, and why.
    """

    source: str
    lifetimes: Lifetimes
    offset: Int64Array
    arena_bytes: int
    lower_bound_bytes: int
    proven: bool
    method: str
    planning_time_ns: int
    iteration: tuple[int, int] | None = None
    repetition: Repetition | None = None
    notes: tuple[str, ...] = ()
    mode: str = ""
    window: str = ""
    of_table: bool = False

    @property
    def covered(self) -> npt.NDArray[np.bool_]:
        """Which storages have an address."""
        return np.not_equal(self.offset, NO_OFFSET)

    def columns(self) -> PlanColumns:
        """Return what an allocator serves; what has no address is told when it will be freed."""
        lives = self.lifetimes
        rows = np.flatnonzero(lives.storage_class != StorageClass.PRIVATE)
        return PlanColumns(
            storage=lives.storage[rows],
            offset=self.offset[rows],
            size=lives.size[rows],
            start=lives.start[rows],
            end=lives.end[rows],
            stream=lives.stream[rows],
            arena=self.arena_bytes,
            period=lives.ticks,
        )


def plan_history(
    history: MemoryHistory,
    effort: Effort = FAST,
    iterations: Sequence[int] | None = None,
    *,
    marked: bool = False,
) -> Plan:
    """Plan all that a history allocates; see `plan_events`."""
    try:
        plan = plan_events(history.events, history.segments, effort, iterations, marked=marked)
    except PlanError as error:
        raise PlanError(f"{history.source}: {error}") from None
    return replace(plan, source=history.source)


def plan_events(
    events: AllocationEvents,
    segments: Sequence[SegmentState] = (),
    effort: Effort = FAST,
    iterations: Sequence[int] | None = None,
    *,
    marked: bool = False,
) -> Plan:
    """Plan the storages of `events` and those live in `segments` before them.

    Without `iterations` the events happen once, or again from the start after all has been freed.
    With the ticks at which iterations begin, the plan holds for any number of them after the events
    before, see steady.py; what it leaves out is UNMATCHED. `marked` says that the iterations are
    those that were marked while the events were recorded. Storages of different streams never share
    memory: the events do not tell when a stream's work on freed memory is done. Raises PlanError
    where nothing repeats, or where more than 2^61 bytes live at once.
    """
    lives = lifetimes(events, segments)
    if iterations is None:
        return _plan_by_stream(lives, lambda rows: _pack(lives, rows, effort))
    steady = steady_state(lives, iterations, marked=marked)
    plan = _plan_by_stream(steady.lifetimes, lambda rows: _pack_cycle(steady, rows, effort))
    plan = replace(plan, iteration=steady.window, repetition=steady.repetition)
    fault = fault_of(plan)
    if fault:
        raise PlanError(
            f"What was recorded does not repeat as one iteration does: {fault} Choose another"
            " iteration, or plan all events as they are."
        )
    return plan


def fault_of(plan: Plan) -> str:
    """Say what is wrong with a plan, the first fault in a sentence; "" where nothing is."""
    rows = np.flatnonzero(plan.covered)
    buffers = as_buffers(plan, rows, plan.lifetimes.end)
    return find_fault(buffers, plan.offset[rows], plan.arena_bytes)


def as_buffers(plan: Plan, rows: Int64Array, end: Int64Array) -> Buffers:
    """Take storages of a plan as the buffers that were planned, with other ends of their lives."""
    lives = plan.lifetimes
    if plan.of_table:
        return Buffers(lives.start[rows], end[rows], lives.size[rows], lives.alignment[rows])
    return _buffers(lives, rows, lives.start, end)


_Packed = tuple[Packing | CyclicPacking, Int64Array]


def _plan_by_stream(lives: Lifetimes, pack: Callable[[Int64Array], _Packed]) -> Plan:
    """Give every stream a region of the arena, one above the other."""
    offset = np.full(len(lives), NO_OFFSET, dtype=np.int64)
    plannable = ~np.isin(lives.storage_class, LEFT_OUT)
    streams = list(dict.fromkeys(lives.stream[plannable].tolist()))
    packings: list[Packing | CyclicPacking] = []
    base = 0
    for stream in streams:
        rows = np.flatnonzero(plannable & (lives.stream == stream))
        packing, offsets = pack(rows)
        offset[rows] = offsets + base
        base += -(-packing.arena_bytes // ALIGNMENT) * ALIGNMENT
        packings.append(packing)
    return Plan(
        source="",
        lifetimes=lives,
        offset=offset,
        arena_bytes=base,
        lower_bound_bytes=sum(packing.lower_bound_bytes for packing in packings),
        proven=all(packing.proven for packing in packings),
        method=", ".join(dict.fromkeys(packing.method for packing in packings)),
        planning_time_ns=sum(packing.planning_time_ns for packing in packings),
        notes=tuple(_notes(lives, streams)),
    )


def _buffers(lives: Lifetimes, rows: Int64Array, start: Int64Array, end: Int64Array) -> Buffers:
    """Take storages as buffers; where all are aligned alike, the rest of a unit is lost anyway."""
    size, alignment = lives.size[rows], lives.alignment[rows]
    if len(rows) and (alignment == alignment[0]).all():
        size = -(-size // alignment) * alignment
    return Buffers(start[rows], end[rows], size, alignment)


def _pack(lives: Lifetimes, rows: Int64Array, effort: Effort) -> _Packed:
    packing = plan_buffers(_buffers(lives, rows, lives.start, lives.end), effort)
    return packing, packing.offsets


def _pack_cycle(steady: SteadyState, rows: Int64Array, effort: Effort) -> _Packed:
    """Plan head and template; every later iteration's storages get the offsets of their twins."""
    templates = np.unique(steady.template[rows])
    lives, repetition = replace(steady.lifetimes, size=steady.size), steady.repetition
    buffers = replace(
        _buffers(lives, templates, repetition.start, repetition.end),
        again_start=steady.before[templates],
        again_end=steady.before_end[templates],
    )
    packing = plan_cycle(buffers, 0, repetition.period, effort)
    place = np.searchsorted(templates, steady.template[rows])
    turn = steady.iteration[rows] % packing.copies[place]
    return packing, packing.offsets[packing.first[place] + turn]


def _notes(lives: Lifetimes, streams: Sequence[int]) -> Iterator[str]:
    private = np.count_nonzero(lives.storage_class == StorageClass.PRIVATE)
    if private:
        yield (
            f"{private} storages lie in private pools, whose addresses graphs may use at any time;"
            " they are left to the caching allocator."
        )
    varying = lives.storage_class == StorageClass.VARYING
    if varying.any():
        yield (
            f"{np.count_nonzero(varying)} storages of {lives.size[varying].sum()} bytes do not come"
            " in every iteration with the same size; they get no address, but it is known when they"
            " live: they lie where the arena is idle then, or else in the caching allocator."
        )
    unmatched = lives.storage_class == StorageClass.UNMATCHED
    if unmatched.any():
        yield (
            f"{np.count_nonzero(unmatched)} storages of {lives.size[unmatched].sum()} bytes do not"
            " come in at least half of the iterations, or are never freed; they get no address."
        )
    if len(streams) > 1:
        yield (
            f"The storages are of {len(streams)} streams, and it is not known when the work of one"
            " is done: none reuses the memory of another."
        )
