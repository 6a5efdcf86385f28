"""Lifetimes on several streams in, a plan out: a region for each stream, or one arena for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from et_replay.events import Int64Array
from et_replay.planning.cycle import CyclicPacking, plan_cycle
from et_replay.planning.lifetimes import ALIGNMENT, Lifetimes, StorageClass
from et_replay.planning.packing import FAST, Effort, Packing, plan_buffers
from et_replay.planning.plan import LEFT_OUT, NO_OFFSET, Plan, buffers_of, load_of
from et_replay.planning.steady import SteadyState

_MARGINS = (8, 16, 32, 64, 128, 256)
"""Parts of all time by which storages of one stream are kept apart from those of another."""
_DEARER = 1.01
"""How much more memory that may take."""

_Packed = tuple[Packing | CyclicPacking, Int64Array]


def plan_by_stream(lives: Lifetimes, pack: Callable[[Int64Array], _Packed]) -> Plan:
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


def plan_together(
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


def pack_once(
    lives: Lifetimes, rows: Int64Array, effort: Effort, margin: Int64Array | int = 0
) -> _Packed:
    """Plan storages, each as if it lived `margin` longer on both sides."""
    start, end = np.maximum(lives.start - margin, 0), np.minimum(lives.end + margin, lives.ticks)
    packing = plan_buffers(buffers_of(lives, rows, start, end), effort)
    return packing, packing.offsets


def pack_cycle(
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
        buffers_of(lives, templates, start, end),
        again_start=steady.before[templates],
        again_end=steady.before_end[templates],
    )
    packing = plan_cycle(buffers, 0, repetition.period, effort)
    place = np.searchsorted(templates, steady.template[rows])
    turn = steady.iteration[rows] % packing.copies[place]
    return packing, packing.offsets[packing.first[place] + turn]


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
