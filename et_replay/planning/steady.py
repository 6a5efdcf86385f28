"""Lifetimes and where iterations begin in; a head, an iteration that repeats and its twins out.

    ticks       0 ...... begin ........ begin ........ begin .............. the end
    storages     the head    the template    its twins      its twins

The template is the iteration that a plan is made for. Every storage of it that later iterations ask
for as well, with the same size and stream, is planned; what differs between iterations is not. Time
is counted in these requests, as it is the same in all iterations then: a storage lives from its own
request to that before which it is freed, the last over all iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from et_replay.errors import PlanError
from et_replay.events import Int64Array
from et_replay.planning.iterations import align, requests
from et_replay.planning.lifetimes import Lifetimes, StorageClass

_ALIKE = 0.2
"""The share of the template that a later iteration must have to be one."""


@dataclass(frozen=True, eq=False)
class SteadyState:
    """What repeats, of `period` requests that come in every iteration.

    For each row of `lifetimes`: `template` is the row whose address it shares, itself in the head
    and in the template; `iteration` counts from 0 at the template; `start` and `end` are times in
    requests from the begin of the template on, negative in the head. `window` are the ticks of the
    template. A storage of the head that lives into the template as those do that cross its end is
    the twin of one of them, whose `before` and `before_end` tell that life.
    """

    lifetimes: Lifetimes
    window: tuple[int, int]
    period: int
    template: Int64Array
    iteration: Int64Array
    start: Int64Array
    end: Int64Array
    before: Int64Array
    before_end: Int64Array


def steady_state(lives: Lifetimes, begins: Sequence[int]) -> SteadyState:
    """Tell head, template, twins and the rest apart; the rest becomes UNMATCHED.

    Of three iterations or more the second is the template, as the first makes what later ones find.
    """
    begins = begins[1:] if len(begins) > 2 else begins
    bounds = [*begins, lives.ticks]
    parts = [requests(lives, *bound) for bound in pairwise(bounds)]
    made = _made(parts[0], _twins(lives, parts))
    freed = ((lives.end[made] < lives.ticks) & (made >= 0)).any(axis=0)
    if not freed.any():
        raise PlanError("Nothing in the iterations that are to repeat comes again and is freed.")
    return _assemble(lives, (bounds[0], bounds[1]), made[:, freed])


def _twins(lives: Lifetimes, parts: Sequence[Int64Array]) -> list[dict[int, int]]:
    """Map the template's rows to those of each iteration that is like it, itself first."""
    template = parts[0]
    twins = [{int(row): int(row) for row in template}]
    for part in parts[1:]:
        pairs = dict(align(lives, template, part))
        if len(pairs) < _ALIKE * len(template):
            break
        twins.append(pairs)
    return twins


def _made(template: Int64Array, twins: Sequence[dict[int, int]]) -> Int64Array:
    """List the rows that every iteration has, a line for each iteration.

    The recording may end within the last one: what it would have made after that is -1.
    """
    reached = max(twins[-1])
    rows = [
        row
        for row in template.tolist()
        if all(row in twin for twin in twins[:-1]) and (row in twins[-1] or row > reached)
    ]
    made = [[twin.get(row, -1) for row in rows] for twin in twins]
    return np.array(made, dtype=np.int64).reshape(len(twins), len(rows))


def _assemble(lives: Lifetimes, window: tuple[int, int], made: Int64Array) -> SteadyState:
    """Tell for every row what it is; `made` has the planned rows, a line for each iteration."""
    begin, period = window[0], made.shape[1]
    head = lives.start < begin
    private = lives.storage_class == StorageClass.PRIVATE
    start, end = lives.start - begin, lives.end - begin
    lasts = head & (lives.end > begin)
    end[lasts] = np.searchsorted(lives.start[made[0]], lives.end[lasts])
    end[head & (lives.end >= window[1])] = period
    steady = SteadyState(
        lifetimes=replace(
            lives,
            storage_class=np.where(head | private, lives.storage_class, StorageClass.UNMATCHED),
        ),
        window=window,
        period=period,
        template=np.arange(len(lives)),
        iteration=np.zeros(len(lives), dtype=np.int64),
        start=start,
        end=end,
        before=np.zeros(len(lives), dtype=np.int64),
        before_end=np.zeros(len(lives), dtype=np.int64),
    )
    _add_twins(steady, made)
    _add_lives_before(steady, np.flatnonzero(lasts & (lives.end < window[1])), made[0])
    return steady


def _add_twins(steady: SteadyState, made: Int64Array) -> None:
    ends = _ends(steady.lifetimes, made)
    kinds = np.where(ends > steady.period, StorageClass.CROSSING, StorageClass.PASSING)
    for k, line in enumerate(made):
        there = np.flatnonzero(line >= 0)
        rows = line[there]
        steady.template[rows], steady.iteration[rows] = made[0, there], k
        steady.start[rows], steady.end[rows] = there, ends[there]
        steady.lifetimes.storage_class[rows] = kinds[there]


def _add_lives_before(steady: SteadyState, rows: Int64Array, template: Int64Array) -> None:
    """Give rows of the head that are freed in the template the place of one that crosses its end.

    It is of the same size and stream, and the lives that it leaves over end there or later.
    """
    lives, free_at = steady.lifetimes, steady.end[template] - steady.period
    crossing = template[(free_at > 0) & (free_at <= steady.start[template])]
    waiting = sorted(crossing.tolist(), key=lambda row: int(steady.end[row]))
    for head in sorted(rows.tolist(), key=lambda row: int(steady.end[row])):
        for row in waiting:
            if (
                lives.size[row] == lives.size[head]
                and lives.stream[row] == lives.stream[head]
                and steady.end[head] <= steady.end[row] - steady.period
            ):
                steady.template[head] = row
                steady.before[row], steady.before_end[row] = steady.start[head], steady.end[head]
                waiting.remove(row)
                break


def _ends(lives: Lifetimes, made: Int64Array) -> Int64Array:
    """Find when each planned storage ends, in requests: the last over all iterations."""
    iterations, period = made.shape
    there = made >= 0
    clock = lives.start[made[there]]
    freed = lives.end[made]
    ends = np.searchsorted(clock, freed) - period * np.arange(iterations)[:, None]
    last: Int64Array = np.where(there & (freed < lives.ticks), ends, 0).max(axis=0)
    return last
