"""Lifetimes and where iterations begin in; a head, an iteration that repeats and its twins out.

    ticks       0 ...... begin ........ begin ........ begin .............. the end
    storages     the head    the template    its twins      its twins

The template is the iteration that a plan is made for. Every storage of it that later iterations ask
for as well is part of what repeats; what less than half of them have is not. Where most iterations
are the same, one that is not, such as one with another batch size, does not count. Time is counted
in these requests, as it is the same in all iterations then: a storage lives from its own request to
that before which it is freed, the last over all iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from et_replay.errors import PlanError
from et_replay.events import Int64Array
from et_replay.planning.alignment import align
from et_replay.planning.iterations import requests
from et_replay.planning.lifetimes import Lifetimes, StorageClass

_ALIKE = 0.2
"""The share of the template that a later iteration must have to be one."""
_THE_SAME = 0.95
"""The share of requests, by size and stream, that two iterations of the same shape have alike."""
NO_TWIN = -1


@dataclass(frozen=True, eq=False)
class Repetition:
    """How recorded storages repeat, a row each, in iterations of `period` requests.

    `begins` are the ticks at which the iterations up to the template begin, the first at 0. `twin`
    is the row of the template that a storage stands for, itself in the template, NO_TWIN where it
    repeats none. `start` and `end` are times: in requests from the template's begin on, and before
    that in ticks, negative; of what repeats those of the template, of the rest 0. `marked` says
    that the iterations are those that were marked while it was recorded.
    """

    begins: tuple[int, ...]
    period: int
    twin: Int64Array
    start: Int64Array
    end: Int64Array
    marked: bool = False


@dataclass(frozen=True, eq=False)
class SteadyState:
    """What repeats, and what a plan needs to know of it.

    For each row of `lifetimes`: `template` is the row whose address it shares, itself in the head
    and in the template; `iteration` counts from 0 at the template. `size` is the largest of all
    that share an address. `window` are the ticks of the template. A storage of the head that lives
    into the template as those do that cross its end shares the address of one of them, whose
    `before` and `before_end` tell that life.
    """

    lifetimes: Lifetimes
    window: tuple[int, int]
    repetition: Repetition
    template: Int64Array
    iteration: Int64Array
    size: Int64Array
    before: Int64Array
    before_end: Int64Array


def steady_state(
    lives: Lifetimes, begins: Sequence[int], *, marked: bool = False, one_clock: bool = False
) -> SteadyState:
    """Tell head, template, twins and the rest apart; the rest becomes UNMATCHED.

    Of three iterations or more the second is the template, as the first makes what later ones find;
    or a later one, where the second is not as most are. What follows the last begin may be a part
    of an iteration, or nothing. With `one_clock` the requests of all streams tell the time, for
    those that are to share memory. Raises PlanError where nothing comes again, or where streams
    interleave differently in each iteration and yet are to share it.
    """
    bounds = list(pairwise([*begins, lives.ticks]))
    parts = [requests(lives, *bound) for bound in bounds]
    chosen = _alike(lives, parts, marked) if len(parts) > 2 else list(range(len(parts)))
    window, parts = bounds[chosen[0]], [parts[number] for number in chosen]
    made = _made(parts[0], _twins(lives, parts))
    if not _freed(lives, made).any():
        raise PlanError("Nothing in the iterations that are to repeat comes again and is freed.")
    if one_clock and (np.diff(lives.start[made[made >= 0]]) <= 0).any():
        raise PlanError("The requests of streams interleave differently in each iteration.")
    clocks = np.zeros_like(lives.stream) if one_clock else lives.stream
    steady = _assemble(lives, window, made, clocks)
    before = [0, *(begin for begin in begins if begin <= window[0])]
    repetition = replace(steady.repetition, begins=tuple(dict.fromkeys(before)), marked=marked)
    _pair_head(steady.lifetimes, repetition, made[0])
    return replace(steady, repetition=repetition)


def _alike(lives: Lifetimes, parts: Sequence[Int64Array], marked: bool) -> list[int]:
    """Choose the iterations that count, by number: those that are the same, if most are.

    The first does not, but where iterations are marked and there is only one more, as the process
    had one before these. What follows the last mark counts only where it is needed to see what
    outlives an iteration: it may be anything.
    """
    kinds = np.stack([lives.size, lives.stream])
    _, keys = np.unique(kinds, axis=1, return_inverse=True)
    counts = [np.bincount(keys.reshape(-1)[part], minlength=len(lives)) for part in parts]
    least = max(map(len, parts[1:])) // 2
    whole = [k for k in range(len(parts)) if len(parts[k]) > least]
    if marked:
        whole = [k for k in whole if k < len(parts) - 1] or whole
    if not marked or len(whole) > 2:
        whole = [k for k in whole if k > 0]
    rest = [len(parts) - 1]
    last = rest if rest[0] not in whole and not (marked and len(whole) > 1) else []
    for k in whole:
        shared = {other: np.minimum(counts[k], counts[other]).sum() for other in whole}
        shorter = {other: min(len(parts[k]), len(parts[other])) for other in whole}
        same = [other for other in whole if shared[other] >= _THE_SAME * shorter[other]]
        if 2 * len(same) > len(whole):
            return [*same, *last]
    return [*whole, *last]


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
    """List the rows that half of the iterations have, a line for each iteration: -1 where not.

    The recording may end within the last one, which is taken to have what would come after that.
    """
    reached = max(twins[-1], default=NO_TWIN)
    missing = {row: sum(row not in twin for twin in twins) for row in template.tolist()}
    rows = [row for row, count in missing.items() if 2 * (count - (row > reached)) <= len(twins)]
    made = [[twin.get(row, NO_TWIN) for row in rows] for twin in twins]
    return np.array(made, dtype=np.int64).reshape(len(twins), len(rows))


def _freed(lives: Lifetimes, made: Int64Array) -> npt.NDArray[np.bool_]:
    """Tell what is freed in any iteration; what every one keeps for good is not."""
    freed: npt.NDArray[np.bool_] = np.any((lives.end[made] < lives.ticks) & (made >= 0), axis=0)
    return freed


def _assemble(
    lives: Lifetimes, window: tuple[int, int], made: Int64Array, clocks: Int64Array
) -> SteadyState:
    """Tell for every row what it is; `made` has what repeats, a line for each iteration."""
    begin, period = window[0], made.shape[1]
    head = lives.start < begin
    private = lives.storage_class == StorageClass.PRIVATE
    start, end = (np.where(head, times - begin, 0) for times in (lives.start, lives.end))
    lasts = head & (lives.end > begin)
    end[lasts] = _requests_before(lives, made[:1], np.flatnonzero(lasts), clocks)
    end[head & (lives.end >= window[1])] = period
    steady = SteadyState(
        lifetimes=replace(
            lives,
            storage_class=np.where(head | private, lives.storage_class, StorageClass.UNMATCHED),
        ),
        window=window,
        repetition=Repetition((), period, np.full(len(lives), NO_TWIN), start, end),
        template=np.arange(len(lives)),
        iteration=np.zeros(len(lives), dtype=np.int64),
        size=lives.size.copy(),
        before=np.zeros(len(lives), dtype=np.int64),
        before_end=np.zeros(len(lives), dtype=np.int64),
    )
    _add_twins(steady, made, clocks)
    _add_lives_before(steady, np.flatnonzero(lasts & (lives.end < window[1])), made[0])
    return steady


def _add_twins(steady: SteadyState, made: Int64Array, clocks: Int64Array) -> None:
    """Tell of all that repeats whether it crosses iterations, or varies."""
    lives, repetition = steady.lifetimes, steady.repetition
    freed = _freed(lives, made)
    ends = _ends(lives, made, freed, clocks)
    sizes = np.where(made >= 0, lives.size[made], 0)
    largest = sizes.max(axis=0)
    sizes[-1, np.flatnonzero(made[-1] >= 0).max(initial=NO_TWIN) + 1 :] = -1  # not recorded
    varies = ((sizes != largest) & (sizes >= 0)).any(axis=0)
    kinds = np.where(ends > repetition.period, StorageClass.CROSSING, StorageClass.PASSING)
    kinds[varies | ~freed] = StorageClass.VARYING
    for k, line in enumerate(made):
        there = np.flatnonzero(line >= 0)
        rows = line[there]
        repetition.twin[rows] = steady.template[rows] = made[0, there]
        steady.iteration[rows] = k
        repetition.start[rows], repetition.end[rows] = there, ends[there]
        steady.size[rows] = largest[there]
        lives.storage_class[rows] = kinds[there]


def _add_lives_before(steady: SteadyState, rows: Int64Array, template: Int64Array) -> None:
    """Give rows of the head that are freed in the template the place of one that crosses its end.

    It is of the same size and stream, and the lives that it leaves over end there or later.
    """
    lives, repetition = steady.lifetimes, steady.repetition
    free_at = repetition.end[template] - repetition.period
    placed = lives.storage_class[template] != StorageClass.VARYING
    crossing = template[placed & (free_at > 0) & (free_at <= repetition.start[template])]
    waiting = sorted(crossing.tolist(), key=lambda row: int(repetition.end[row]))
    for head in sorted(rows.tolist(), key=lambda row: int(repetition.end[row])):
        for row in waiting:
            if (
                steady.size[row] == lives.size[head]
                and lives.stream[row] == lives.stream[head]
                and repetition.end[head] <= repetition.end[row] - repetition.period
            ):
                steady.template[head] = row
                steady.before[row] = repetition.start[head]
                steady.before_end[row] = repetition.end[head]
                waiting.remove(row)
                break


def _pair_head(lives: Lifetimes, repetition: Repetition, template: Int64Array) -> None:
    """Find what the iterations before the template have of it: they vary where it does.

    In another run these have other sizes than in the recording. With a place of the recorded size
    in the arena they would lie beside it, and the place would stay empty.
    """
    for begin, end in pairwise(repetition.begins):
        pairs = align(lives, template, requests(lives, begin, end))
        if len(pairs) < _ALIKE * len(template):
            continue
        rows, twins = np.array(pairs, dtype=np.int64).T
        repetition.twin[twins] = rows
        varies = lives.storage_class[rows] == StorageClass.VARYING
        passes = lives.storage_class[twins] == StorageClass.PASSING
        lives.storage_class[twins[varies & passes]] = StorageClass.VARYING


def _ends(
    lives: Lifetimes, made: Int64Array, freed: npt.NDArray[np.bool_], clocks: Int64Array
) -> Int64Array:
    """Find when each storage that repeats ends, in requests: the last over all iterations.

    What is never freed takes a whole iteration, so all of every one.
    """
    iterations, period = made.shape
    there = (made >= 0) & (lives.end[made] < lives.ticks)
    ends = np.zeros(made.shape, dtype=np.int64)
    ends[there] = _requests_before(lives, made, made[there], clocks)
    last: Int64Array = (ends - period * np.arange(iterations)[:, None]).max(axis=0)
    return np.where(freed, np.maximum(last, 0), np.arange(period) + period)


def _requests_before(
    lives: Lifetimes, made: Int64Array, rows: Int64Array, clocks: Int64Array
) -> Int64Array:
    """Count the requests that have come when rows are freed, from the template's begin on.

    Only those on the own clock tell, which is that of the stream where streams share no memory:
    they may interleave differently.
    """
    clock = np.arange(made.size).reshape(made.shape)
    counts = np.zeros(len(rows), dtype=np.int64)
    for each in np.unique(clocks[rows]):
        of_stream = (made >= 0) & (clocks[made] == each)
        times = np.append(0, clock[of_stream] + 1)
        here = clocks[rows] == each
        last = np.searchsorted(lives.start[made[of_stream]], lives.end[rows[here]])
        counts[here] = times[last]
    return counts
