"""Requests of two iterations in, in order; which of them are the same, place by place, out.

Most ask for the same in both. What varies, such as the tokens that a router gives to an expert,
stands between others that do not, and is told by its place among them. Wanted is the alignment of
two sequences that scores best, as Needleman and Wunsch find it, in a band around the diagonal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from et_replay.events import Int64Array
from et_replay.planning.lifetimes import Lifetimes

_EQUAL = 64
_SIMILAR = 24
"""The score of a pair of nearly the same size; every 1/16 of an octave between them costs 1."""
_LEAST = -31
_GAP = 16
"""What a request without a twin costs: any pair is better than two without one."""
_NEVER = -(2**40)
_SLACK = 128
"""How far from the diagonal to look besides what the lengths differ."""
_MOST_CELLS = 60_000_000
"""About two seconds and 60 MB; beyond it the band is made narrower."""
_TELLING = 16
"""Requests in a row that are equal at the end, by which it is known for the same end."""
_PAIR, _LEFT_ALONE, _RIGHT_ALONE = range(3)


def align(lives: Lifetimes, left: Int64Array, right: Int64Array) -> list[tuple[int, int]]:
    """Pair the rows of two iterations that stand for each other, in order: a row with its twin.

    Streams are told apart, as they may interleave differently. The end of either may be missing.
    """
    pairs: list[tuple[int, int]] = []
    for stream in np.intersect1d(lives.stream[left], lives.stream[right]):
        first, second = (rows[lives.stream[rows] == stream] for rows in (left, right))
        places = _align_sizes(lives.size[first], lives.size[second])
        pairs += zip(first[places[:, 0]].tolist(), second[places[:, 1]].tolist(), strict=True)
    return sorted(pairs)


def _align_sizes(left: Int64Array, right: Int64Array) -> Int64Array:
    """Pair the places of two lists of sizes; what is equal at the ends needs no search."""
    head = _equal_at_first(left, right)
    tail = _equal_at_first(left[head:][::-1], right[head:][::-1])
    tail = tail if tail >= _TELLING else 0
    ends = np.array([len(left), len(right)])
    middle = _search(left[head : ends[0] - tail], right[head : ends[1] - tail])
    first, last = (np.arange(count)[:, None] for count in (head, tail))
    return np.concatenate([first + np.zeros(2, np.int64), head + middle, last + ends - tail])


def _equal_at_first(left: Int64Array, right: Int64Array) -> int:
    shorter = min(len(left), len(right))
    differs = left[:shorter] != right[:shorter]
    return int(np.argmax(differs)) if differs.any() else shorter


class _Table(NamedTuple):
    """How the best alignment of the first `row` of one list with the first of the other ends.

    Row and column count from 0, at which nothing is paired; of each row there are the columns from
    `row - width` to `row + width`.
    """

    steps: npt.NDArray[np.int8]
    width: int

    def step(self, row: int, column: int) -> int:
        return int(self.steps[row, column - row + self.width])


def _search(left: Int64Array, right: Int64Array) -> Int64Array:
    if not len(left) or not len(right):
        return np.zeros((0, 2), dtype=np.int64)
    band = abs(len(left) - len(right)) + _SLACK
    width = min(band, _MOST_CELLS // (2 * len(left)), max(len(left), len(right)))
    table, (row, column) = _fill(left[: len(right) + width], right, width)
    pairs = []
    while row and column:
        step = table.step(row, column)
        row -= step != _RIGHT_ALONE
        column -= step != _LEFT_ALONE
        if step == _PAIR:
            pairs.append((row, column))
    return np.array(pairs[::-1], dtype=np.int64).reshape(len(pairs), 2)


def _fill(left: Int64Array, right: Int64Array, width: int) -> tuple[_Table, tuple[int, int]]:
    """Return the table, and where in it the best alignment ends: where one of both lists does."""
    octaves = [np.rint(16 * np.log2(np.maximum(sizes, 1))) for sizes in (left, right)]
    columns = np.arange(-width, width + 1)
    slope = _GAP * np.arange(2 * width + 1)
    scores = np.where(columns < 0, _NEVER, -_GAP * columns)
    steps = np.full((len(left) + 1, 2 * width + 1), _RIGHT_ALONE, dtype=np.int8)
    best, end = -_GAP * len(right), (0, len(right))
    for row in range(1, len(left) + 1):
        columns += 1
        place = np.clip(columns - 1, 0, len(right) - 1)
        apart = np.abs(octaves[1][place] - octaves[0][row - 1]).astype(np.int64)
        pair = np.maximum(_SIMILAR - apart, _LEAST)
        pair[right[place] == left[row - 1]] = _EQUAL
        paired = np.where(columns > 0, scores + pair, _NEVER)
        alone = np.append(scores[1:], _NEVER) - _GAP
        reached = np.where(columns >= 0, np.maximum(paired, alone), _NEVER)
        reached[columns > len(right)] = _NEVER
        scores = np.maximum.accumulate(reached + slope) - slope
        scores[columns > len(right)] = _NEVER
        steps[row] = np.where(scores > reached, _RIGHT_ALONE, paired < alone)
        last = len(right) - row + width  # the place of the last column
        at = int(np.argmax(scores)) if row == len(left) else min(last, 2 * width)
        if at >= 0 and (at == last or row == len(left)) and scores[at] > best:
            best, end = int(scores[at]), (row, row - width + at)
    return _Table(steps, width), end
