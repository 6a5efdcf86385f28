"""Which requests of two iterations are the same: by size, and where that varies by their place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning.event_lines import events_of

from et_replay.planning import lifetimes
from et_replay.planning.alignment import align

Pair = tuple[int, int]


def paired(left: Sequence[int], right: Sequence[int]) -> list[Pair]:
    """Return the pairs of places of two iterations on one stream."""
    lines = [f"+{number} {size}" for number, size in enumerate([*left, *right])]
    lives = lifetimes(events_of(*lines))
    rows = np.arange(len(lines))
    pairs = align(lives, rows[: len(left)], rows[len(left) :])
    return [(i, j - len(left)) for i, j in pairs]


def score(left: Sequence[int], right: Sequence[int], pairs: Sequence[Pair]) -> int:
    """Score an alignment: what follows the end of one list costs nothing."""
    total, before = 0, (-1, -1)
    for i, j in pairs:
        total -= 16 * (i - before[0] - 1 + j - before[1] - 1)
        total += pair_score(left[i], right[j])
        before = i, j
    rest = len(left) - before[0] - 1, len(right) - before[1] - 1
    return total - 16 * min(rest)


def pair_score(left: int, right: int) -> int:
    if left == right:
        return 64
    apart = abs(round(16 * math.log2(left)) - round(16 * math.log2(right)))
    return max(24 - apart, -31)


def best_score(left: Sequence[int], right: Sequence[int]) -> int:
    """Try all alignments."""

    @cache
    def best(i: int, j: int) -> int:
        if i == len(left) or j == len(right):
            return 0
        return max(
            pair_score(left[i], right[j]) + best(i + 1, j + 1),
            best(i + 1, j) - 16,
            best(i, j + 1) - 16,
        )

    return best(0, 0)


SIZES = st.lists(st.sampled_from((8, 100, 110, 1000, 64000)), max_size=7)


@settings(max_examples=300, deadline=None)
@given(SIZES, SIZES)
def test_no_alignment_scores_better(left: list[int], right: list[int]) -> None:
    pairs = paired(left, right)
    assert pairs == sorted(set(pairs))
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    assert score(left, right, pairs) >= best_score(left, right)


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        pytest.param([1, 2, 3], [1, 2, 3], [(0, 0), (1, 1), (2, 2)], id="equal"),
        pytest.param([], [1], [], id="nothing"),
        pytest.param([1, 700, 3], [1, 600, 3], [(0, 0), (1, 1), (2, 2)], id="one varies"),
        pytest.param([8, 700, 3], [8, 3], [(0, 0), (2, 1)], id="one is missing"),
        pytest.param([8, 3], [8, 700, 3], [(0, 0), (1, 2)], id="one is new"),
        pytest.param([5, 6, 7, 8], [5, 6], [(0, 0), (1, 1)], id="the end is missing"),
        pytest.param([9, 1, 9, 9**9], [9, 2], [(0, 0), (1, 1)], id="no twin at the end"),
        pytest.param(
            [4, 100, 8000, 4, 300, 9000, 4],
            [4, 120, 7000, 4, 4],
            [(0, 0), (1, 1), (2, 2), (3, 3), (6, 4)],
            id="an expert without tokens",
        ),
    ],
)
def test_requests_are_paired(left: list[int], right: list[int], pairs: list[Pair]) -> None:
    assert paired(left, right) == pairs


def test_streams_are_aligned_on_their_own() -> None:
    lines = ("+a 100, +x 700 @7, +b 200, +y 800 @7", "+c 700 @7, +d 800 @7, +e 100, +f 200")
    lives = lifetimes(events_of(*lines))

    pairs = align(lives, np.arange(4), np.arange(4, 8))
    assert pairs == [(0, 6), (1, 4), (2, 7), (3, 5)]


def test_long_iterations_with_a_difference_here_and_there_are_paired() -> None:
    rng = np.random.default_rng(1)
    left = rng.choice([512, 1024, 4096, 2**20, 3 * 2**20], 3000).tolist()
    right = left.copy()
    right[100] = 700
    del right[2000:2012]

    pairs = paired(left, right)
    assert len(pairs) == 2988
    assert (100, 100) in pairs
    assert sum(left[i] == right[j] for i, j in pairs) == 2987
