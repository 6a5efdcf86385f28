"""Allocation events in, an address for every storage out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from et_replay.planning.packing import (
    FAST,
    Effort,
    Packing,
    find_fault,
    lower_bound,
    plan_buffers,
)
from et_replay.planning.steady import Repetition, SteadyState, steady_state

NO_OFFSET = -1
_MARGINS = (8, 16, 32, 64, 128, 256)
"""Parts of all time by which storages of one stream are kept apart from those of another."""
_DEARER = 1.01
"""How much more memory that may take."""
LEFT_OUT = (StorageClass.PRIVATE, StorageClass.UNMATCHED, StorageClass.VARYING)
"""The classes of storages that get no address."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Offsets in one arena for the storages of `lifetimes`, -1 for those that it leaves out.

    `lower_bound_bytes` is the most that lives at once, summed over streams that share no memory.
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
    share_streams: bool = False,
) -> Plan:
    """Plan all that a history allocates; see `plan_events`."""
    try:
        plan = plan_events(
            history.events,
            history.segments,
            effort,
            iterations,
            marked=marked,
            share_streams=share_streams,
        )
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
    share_streams: bool = False,
) -> Plan:
    """Plan the storages of `events` and those live in `segments` before them.

    Without `iterations` the events happen once, or again from the start after all has been freed.
    With the ticks at which iterations begin, the plan holds for any number of them after the events
    before, see steady.py; what it leaves out is UNMATCHED. `marked` says that the iterations are
    those that were marked while the events were recorded. Storages of different streams share
    memory only with `share_streams`: the events do not tell when a stream's work on freed memory is
    done, and who serves the plan must let one wait for the other. Raises PlanError where nothing
    repeats, where streams that are to share memory interleave differently in each iteration, or
    where more than 2^61 bytes live at once.
    """
    lives = lifetimes(events, segments)
    share_streams = share_streams and len(np.unique(lives.stream)) > 1
    if iterations is None:
        if share_streams:
            return _plan_together(lives, lives.ticks, partial(_pack, lives), effort)
        return _plan_by_stream(lives, lambda rows: _pack(lives, rows, effort))
    steady = steady_state(lives, iterations, marked=marked, one_clock=share_streams)
    lives, repetition = steady.lifetimes, steady.repetition
    if share_streams:
        pack = partial(_pack_cycle, steady)
        plan = _plan_together(lives, repetition.period, pack, effort, steady.window)
    else:
        plan = _plan_by_stream(lives, lambda rows: _pack_cycle(steady, rows, effort))
    plan = replace(plan, iteration=steady.window, repetition=repetition)
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
    return replace(_assembled(lives, offset, packings, _notes(lives, streams)), arena_bytes=base)


def _plan_together(
    lives: Lifetimes,
    ticks: int,
    pack: Callable[[Int64Array, Effort, Int64Array], _Packed],
    effort: Effort,
    iteration: tuple[int, int] | None = None,
) -> Plan:
    """Give all streams one arena, `ticks` being how many there are in what is packed.

    A stream should seldom have to wait for what another freed. So what is of others than the stream
    with most memory is packed as if it lived longer, by as much as costs little memory.
    """
    plannable = np.flatnonzero(~np.isin(lives.storage_class, LEFT_OUT))
    streams, place = np.unique(lives.stream, return_inverse=True)
    of_streams = np.bincount(place, weights=lives.size * (lives.end - lives.start))
    aside = place != of_streams.argmax()

    def planned(margin: int, effort: Effort) -> Plan:
        packing, offsets = pack(plannable, effort, np.where(aside, margin, 0))
        offset = np.full(len(lives), NO_OFFSET, dtype=np.int64)
        offset[plannable] = offsets
        notes = _notes(lives, streams.tolist(), together=True)
        plan = replace(_assembled(lives, offset, [packing], notes), iteration=iteration)
        load = load_of(plan)
        return replace(plan, lower_bound_bytes=load, proven=packing.arena_bytes == load)

    best, best_margin = planned(0, FAST), 0
    for share in _MARGINS:
        wide = planned(ticks // share, FAST)
        if wide.arena_bytes <= _DEARER * best.arena_bytes:
            best, best_margin = wide, ticks // share
            break
    return best if effort == FAST else planned(best_margin, effort)


def _assembled(
    lives: Lifetimes,
    offset: Int64Array,
    packings: Sequence[Packing | CyclicPacking],
    notes: Iterable[str],
) -> Plan:
    """Make the plan of packings, one above the other."""
    return Plan(
        source="",
        lifetimes=lives,
        offset=offset,
        arena_bytes=sum(packing.arena_bytes for packing in packings),
        lower_bound_bytes=sum(packing.lower_bound_bytes for packing in packings),
        proven=all(packing.proven for packing in packings),
        method=", ".join(dict.fromkeys(packing.method for packing in packings)),
        planning_time_ns=sum(packing.planning_time_ns for packing in packings),
        notes=tuple(notes),
    )


def load_of(plan: Plan) -> int:
    """Return the most that lives at once up to the end of the iteration, on all streams.

    Raises PlanError where that is more than 2^61 bytes.
    """
    lives = plan.lifetimes
    stop = int(lives.end.max(initial=0)) if plan.iteration is None else plan.iteration[1]
    seen = np.flatnonzero(plan.covered & (lives.start < stop))
    return lower_bound(as_buffers(plan, seen, np.minimum(lives.end, stop)))


def is_by_stream(plan: Plan) -> bool:
    """Tell whether the lower bound of a plan is that of several streams, added up."""
    several = len(np.unique(plan.lifetimes.stream[plan.covered])) > 1
    return several and plan.lower_bound_bytes > load_of(plan)


def _buffers(lives: Lifetimes, rows: Int64Array, start: Int64Array, end: Int64Array) -> Buffers:
    """Take storages as buffers; where all are aligned alike, the rest of a unit is lost anyway."""
    size, alignment = lives.size[rows], lives.alignment[rows]
    if len(rows) and (alignment == alignment[0]).all():
        size = -(-size // alignment) * alignment
    return Buffers(start[rows], end[rows], size, alignment)


def _pack(
    lives: Lifetimes, rows: Int64Array, effort: Effort, margin: Int64Array | int = 0
) -> _Packed:
    """Plan storages, each as if it lived `margin` longer on both sides."""
    start, end = np.maximum(lives.start - margin, 0), np.minimum(lives.end + margin, lives.ticks)
    packing = plan_buffers(_buffers(lives, rows, start, end), effort)
    return packing, packing.offsets


def _pack_cycle(
    steady: SteadyState, rows: Int64Array, effort: Effort, margin: Int64Array | int = 0
) -> _Packed:
    """Plan head and template; every later iteration's storages get the offsets of their twins.

    A margin does not reach over the ends of an iteration.
    """
    templates = np.unique(steady.template[rows])
    lives, repetition = replace(steady.lifetimes, size=steady.size), steady.repetition
    start, end, period = repetition.start, repetition.end, repetition.period
    inside = (start >= 0) & (end <= period)
    once = end <= 0
    longer = end + np.where(inside | once, margin, 0)
    start = start - np.where(inside, np.minimum(margin, start), np.where(once, margin, 0))
    end = np.where(inside, np.minimum(longer, period), np.minimum(longer, np.maximum(end, 0)))
    buffers = replace(
        _buffers(lives, templates, start, end),
        again_start=steady.before[templates],
        again_end=steady.before_end[templates],
    )
    packing = plan_cycle(buffers, 0, repetition.period, effort)
    place = np.searchsorted(templates, steady.template[rows])
    turn = steady.iteration[rows] % packing.copies[place]
    return packing, packing.offsets[packing.first[place] + turn]


def _notes(lives: Lifetimes, streams: Sequence[int], together: bool = False) -> Iterator[str]:
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
    if together:
        yield (
            f"The storages are of {len(streams)} streams, which share memory: under the plan one"
            " waits until the work of another on what it has freed there is done."
        )
    elif len(streams) > 1:
        yield (
            f"The storages are of {len(streams)} streams, and it is not known when the work of one"
            " is done: none reuses the memory of another, unless --share-streams lets one wait for"
            " another."
        )
