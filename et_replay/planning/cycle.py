"""A window that repeats in, offsets that are valid for any number of iterations out.

With a window [begin, end) of length P, a buffer that is born in it at `start` is born again every P
ticks. Seen from one iteration it is one of these:

* `end` within the window: an ordinary interval.
* It crosses the boundary, and is gone when its next instance is born: one offset, in use at the end
  of every iteration and at the head of the next.
* It lives longer than P: m = ceil((end - start) / P) instances are alive at once. They take turns
  with m offsets, one for every iteration number modulo m, all of which are set aside for the whole
  iteration.

What is born before the window happens once. If it lives until the window's end, it stays for good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from et_replay.buffers import Buffers
from et_replay.errors import PlanError
from et_replay.events import Int64Array
from et_replay.planning.packing import FAST, Effort, find_fault, lower_bound, plan_buffers

_LARGEST = 50_000_000


@dataclass(frozen=True, eq=False)
class CyclicPacking:
    """Offsets for a window that repeats.

    Row i of the buffers has `copies[i]` offsets from `first[i]` on, which its iterations, counted
    from 0 at the window, take in turn. `lower_bound_bytes` is the most that lives at
    once in any iteration, which on a circle may be out of reach for any plan.
    """

    period: int
    offsets: Int64Array
    first: Int64Array
    copies: Int64Array
    arena_bytes: int
    lower_bound_bytes: int
    proven: bool
    method: str
    planning_time_ns: int


def plan_cycle(buffers: Buffers, begin: int, end: int, effort: Effort = FAST) -> CyclicPacking:
    """Choose offsets for buffers of which those born in [begin, end) are born every iteration.

    The `again` of one that crosses the boundary is where it lives before the window for the first
    time, up to where its later lives end in it. Raises PlanError for a window without length, and
    for buffers born after it.
    """
    if begin >= end:
        raise PlanError(f"Expected a window that ends after it begins, got [{begin}, {end}).")
    late = np.flatnonzero(buffers.start >= end)
    if len(late):
        raise PlanError(
            f"Buffer {late[0]} starts at {buffers.start[late[0]]}, which is not before the end"
            f" {end} of the window that repeats; choose the last window."
        )
    copies = instances(buffers, begin, end)
    every = _unroll(buffers, begin, end, copies)
    packing = plan_buffers(_fold(buffers, begin, end, copies), effort)
    bound = lower_bound(every.buffers)
    result = CyclicPacking(
        period=end - begin,
        offsets=packing.offsets,
        first=np.cumsum(copies) - copies,
        copies=copies,
        arena_bytes=packing.arena_bytes,
        lower_bound_bytes=bound,
        proven=packing.arena_bytes == bound,
        method=packing.method,
        planning_time_ns=packing.planning_time_ns,
    )
    _check(result, every, forever=(buffers.start < begin) & (buffers.end >= end))
    return result


def unrolled(buffers: Buffers, begin: int, end: int) -> Buffers:
    """List what happens before the window and in so many iterations that all meets that ever can.

    Raises PlanError where that are too many.
    """
    return _unroll(buffers, begin, end, instances(buffers, begin, end)).buffers


def instances(buffers: Buffers, begin: int, end: int) -> Int64Array:
    """Count how many instances of each buffer are alive at once."""
    length, period = buffers.end - buffers.start, end - begin
    return np.where(buffers.start >= begin, np.maximum(1, -(-length // period)), 1)


def _fold(buffers: Buffers, begin: int, end: int, copies: Int64Array) -> Buffers:
    """Lay all iterations over each other: what may live at the same time shares a tick."""
    repeats = buffers.start >= begin
    turns = copies > 1
    crosses = repeats & ~turns & (buffers.end > end)
    rows = np.repeat(np.arange(len(buffers)), copies)
    start = np.where(turns, begin, buffers.start)
    stop = np.where(turns, end, np.minimum(buffers.end, end))
    again = np.where(crosses, buffers.end - (end - begin), begin)
    lived = crosses & (buffers.again_start < buffers.again_end)
    return Buffers(
        start=start[rows],
        end=stop[rows],
        size=buffers.size[rows],
        alignment=buffers.alignment[rows],
        offset=buffers.offset[rows],
        again_start=np.where(lived, buffers.again_start, begin)[rows],
        again_end=again[rows],
    )


class _Unrolled(NamedTuple):
    """What happens before the window and in some iterations: for each buffer its row and turn."""

    buffers: Buffers
    row: Int64Array
    iteration: Int64Array


def _unroll(buffers: Buffers, begin: int, end: int, copies: Int64Array) -> _Unrolled:
    iterations = int(copies.max(initial=1)) + 2  # by then all that can meet has met
    if copies.sum() + iterations * len(buffers) > _LARGEST:
        raise PlanError(
            f"A buffer lives for {iterations - 2} iterations of {end - begin} ticks, which is too"
            " long to tell them apart; choose a longer window."
        )
    once = np.flatnonzero(buffers.start < begin)
    before = np.flatnonzero(buffers.again_start < buffers.again_end)
    every = np.tile(np.flatnonzero(buffers.start >= begin), iterations)
    row = np.concatenate([once, before, every])
    iteration = np.repeat(np.arange(iterations), len(every) // iterations)
    iteration = np.concatenate([np.zeros(len(once) + len(before), np.int64), iteration])
    start, stop = buffers.start[row], buffers.end[row]
    lives_before = slice(len(once), len(once) + len(before))
    start[lives_before], stop[lives_before] = buffers.again_start[before], buffers.again_end[before]
    every_buffer = Buffers(
        start=start + iteration * (end - begin),
        end=stop + iteration * (end - begin),
        size=buffers.size[row],
        alignment=buffers.alignment[row],
        offset=buffers.offset[row],
    )
    return _Unrolled(every_buffer, row, iteration)


def _check(plan: CyclicPacking, every: _Unrolled, forever: npt.NDArray[np.bool_]) -> None:
    """Let the validator see the iterations, what outlives the window staying for good."""
    buffers, row, iteration = every
    end = np.where(forever[row], buffers.end.max(initial=0), buffers.end)
    offsets = plan.offsets[plan.first[row] + iteration % plan.copies[row]]
    fault = find_fault(replace(buffers, end=end), offsets, plan.arena_bytes)
    if fault:
        raise AssertionError(f"The plan does not hold for all iterations: {fault}")
