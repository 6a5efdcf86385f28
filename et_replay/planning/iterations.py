"""Lifetimes in, where the iterations of a job begin out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from et_replay.events import Int64Array, MemoryHistory
from et_replay.planning.alignment import align
from et_replay.planning.lifetimes import Lifetimes, StorageClass

_MOST_UNEVEN = 1.6
"""The longest iteration over the shortest: the first one is another than the rest."""


def find_iterations(lives: Lifetimes) -> tuple[int, ...] | None:
    """Find the ticks at which iterations begin; None where nothing comes again.

    Some requests, by size and stream, come once an iteration: of those that come k times, most
    stand in the same order k times, evenly spread. Loops over layers do not: between the last layer
    of one iteration and the first of the next there is more than between layers. Iterations are cut
    where least is alive.
    """
    places = _repeated_request(lives)
    if places is None:
        return None
    marks = lives.start[places].tolist()
    return _at_the_quietest(lives, marks)


def marked_iterations(history: MemoryHistory, marks: Sequence[int]) -> tuple[int, ...]:
    """Find the ticks at which iterations begin that began at `marks`, in Unix microseconds.

    None are found in a history that does not tell when its events happened.
    """
    if not len(history.times):
        return ()
    passed = np.maximum.accumulate(history.times)  # threads note their events a little out of order
    return tuple((np.searchsorted(passed, marks) + 1).tolist())


def requests(lives: Lifetimes, begin: int, end: int) -> Int64Array:
    """List the rows that are made in the ticks [begin, end), without private pools."""
    plannable = lives.storage_class != StorageClass.PRIVATE
    return np.flatnonzero((lives.start >= begin) & (lives.start < end) & plannable)


def _keys(lives: Lifetimes) -> Int64Array:
    """Number the requests so that equal ones have equal numbers."""
    _, keys = np.unique(np.stack([lives.size, lives.stream]), axis=1, return_inverse=True)
    return keys.reshape(-1).astype(np.int64)


def _repeated_request(lives: Lifetimes) -> Int64Array | None:
    """Return the rows of the largest request that comes once an iteration."""
    made = np.flatnonzero(lives.start > 0)
    keys = _keys(lives)[made]
    order = np.argsort(keys, kind="stable")
    _, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
    for count, kinds in _likeliest_counts(counts):
        rows = made[order[first[kinds][:, None] + np.arange(count)]]  # a line of rows for each kind
        base: Int64Array = rows[np.argmax(lives.size[rows[:, 0]])]
        if _is_even(base, len(lives)) and _in_step(rows, base) > 0.5:
            return base
    return None


def _likeliest_counts(counts: Int64Array) -> list[tuple[int, Int64Array]]:
    """List how often requests come, with the kinds that do: the lowest first.

    That a few come twice is weak evidence, which comes last.
    """
    found = [(int(c), np.flatnonzero(counts == c)) for c in np.unique(counts[counts > 1])]
    return sorted(found, key=lambda pair: (pair[0] == 2 and len(pair[1]) < 3, pair[0]))


def _is_even(rows: Int64Array, total: int) -> bool:
    gaps = np.diff(rows)
    most = total if len(gaps) == 1 else _MOST_UNEVEN * gaps.min()
    return bool(gaps.max() <= most and gaps.mean() * len(rows) >= total / 2)


def _in_step(rows: Int64Array, base: Int64Array) -> float:
    """Return the share of the kinds that come once between two of `base`, or before each."""
    after = (rows >= base).all(axis=1) & (rows[:, :-1] < base[1:]).all(axis=1)
    before = (rows <= base).all(axis=1) & (rows[:, 1:] > base[:-1]).all(axis=1)
    return float(np.mean(after | before))


def _at_the_quietest(lives: Lifetimes, marks: Sequence[int]) -> tuple[int, ...]:
    """Move marks to the request that finds least alive, of those that come in every iteration.

    The first iteration is no measure: its end finds what its beginning did not. What follows the
    last mark may be only the rest of an iteration.
    """
    parts = [
        requests(lives, *bounds) for bounds in zip(marks, [*marks[1:], lives.ticks], strict=True)
    ]
    measure = parts[1] if len(parts) > 2 else parts[0]
    twins = [dict(align(lives, measure, part)) for part in parts]
    everywhere = [
        row
        for row in measure.tolist()
        if all(row in twin and lives.size[twin[row]] == lives.size[row] for twin in twins[:-1])
    ]
    if not everywhere:
        return tuple(marks)
    live = _live_before(lives)
    quietest = min(everywhere, key=lambda row: live[lives.start[row]])
    return tuple(int(lives.start[twin[quietest]]) for twin in twins if quietest in twin)


def _live_before(lives: Lifetimes) -> Int64Array:
    """Return for each tick the bytes that are alive before what is made at it."""
    changes = np.zeros(lives.ticks + 2, dtype=np.int64)
    np.add.at(changes, lives.start + 1, lives.size)
    np.add.at(changes, lives.end, -lives.size)
    return changes.cumsum()
