"""Plans of a few buffers, each with the one right size of its arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest

from et_replay.errors import PlanError
from et_replay.planning import Buffers, Effort, Packing, plan_buffers

Pack = Callable[..., Packing]
LEVELS: tuple[Literal["fast", "best"], ...] = ("fast", "best")


def plan(*columns: Sequence[int] | None) -> Packing:
    return plan_buffers(Buffers(*columns), Effort("best"))


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_needs_an_empty_arena(pack: Pack, level: str) -> None:
    packing = pack([], [], [], level=level)
    assert packing.arena_bytes == packing.lower_bound_bytes == 0
    assert packing.offsets.shape == (0,)
    assert packing.offsets.dtype == np.int64
    assert packing.proven


@pytest.mark.parametrize("level", LEVELS)
def test_one_buffer_lies_at_the_bottom(pack: Pack, level: str) -> None:
    packing = pack([5], [6], [7], level=level)
    assert packing.offsets.tolist() == [0]
    assert packing.arena_bytes == 7
    assert packing.proven
    assert packing.method
    assert packing.planning_time_ns > 0


def test_buffers_that_only_touch_in_time_share_their_bytes(pack: Pack) -> None:
    assert pack([0, 2], [2, 4], [4, 3]).arena_bytes == 4
    assert pack([0, 1], [2, 4], [4, 3]).arena_bytes == 7


def test_the_three_of_the_drawing_fit_what_lives_at_once(pack: Pack) -> None:
    assert pack([0, 2, 4], [4, 8, 8], [2, 1, 2]).arena_bytes == 3


def test_the_five_of_the_solvers_readme_fit_twelve_bytes(pack: Pack) -> None:
    packing = pack([0, 3, 0, 9, 0], [3, 9, 9, 21, 21], [4, 4, 4, 4, 4])
    assert packing.arena_bytes == 12
    assert packing.proven


def test_a_spiral_fits_though_no_straight_cut_makes_it(pack: Pack) -> None:
    # 3 | a a b     a [0, 2) 1 byte, b [2, 3) 2 bytes, c [1, 3) 1 byte, d [0, 1) 2 bytes,
    # 2 | d e b     and e [1, 2) in the middle
    # 1 | d c c
    packing = pack([0, 2, 1, 0, 1], [2, 3, 3, 1, 2], [1, 2, 1, 2, 1])
    assert packing.arena_bytes == 3
    assert packing.proven


def test_what_takes_no_memory_asks_for_none(pack: Pack) -> None:
    zero_size, empty_life = (0, 9, 0), (4, 4, 100)
    packing = pack(*zip(zero_size, empty_life, (0, 9, 5), zero_size, strict=True))
    assert packing.arena_bytes == 5
    assert packing.offsets.tolist() == [0, 0, 0, 0]


def test_offsets_are_multiples_of_the_alignment(pack: Pack) -> None:
    assert pack([0, 0], [1, 1], [1, 1], [1, 4]).arena_bytes == 2  # the aligned one lies below
    packing = pack([0, 0], [1, 1], [3, 3], [4, 4])
    assert packing.arena_bytes == 7
    assert packing.proven  # by trying all, as no load tells


def test_an_aligned_arena_ends_with_the_smallest_remainder(pack: Pack) -> None:
    assert pack([0, 0], [1, 1], [3, 1], [4, 4]).arena_bytes == 5
    assert pack([0, 0, 0], [1, 1, 1], [512, 700, 100], [512, 512, 512]).arena_bytes == 1636


def test_an_alignment_need_not_be_a_power_of_two(pack: Pack) -> None:
    assert pack([0, 0, 0], [1, 1, 1], [2, 2, 1], [3, 3, 5]).arena_bytes == 6


def test_a_fixed_offset_is_kept_and_the_rest_goes_around_it(pack: Pack) -> None:
    packing = pack([0, 0, 0], [2, 2, 2], [2, 10, 3], None, [10, -1, -1])
    assert packing.offsets[0] == 10
    assert packing.arena_bytes == 15
    packing = pack([0, 0, 0], [2, 2, 2], [2, 7, 3], None, [10, -1, -1])
    assert packing.arena_bytes == 12
    assert packing.lower_bound_bytes == 12
    assert packing.proven


def test_a_hole_below_a_fixed_buffer_may_be_too_small(pack: Pack) -> None:
    packing = pack([0, 0], [1, 1], [4, 5], None, [3, -1])
    assert packing.arena_bytes == 12
    assert packing.proven


def test_bytes_are_used_between_the_two_lives_of_a_buffer(pack: Pack) -> None:
    again = [6, 0], [8, 0]
    assert pack([0, 2], [2, 6], [4, 4], None, None, *again).arena_bytes == 4
    assert pack([0, 1], [2, 6], [4, 4], None, None, *again).arena_bytes == 8
    assert pack([0, 2], [2, 7], [4, 4], None, None, *again).arena_bytes == 8


def test_a_second_life_that_begins_where_nothing_else_lives(pack: Pack) -> None:
    packing = pack([0, 9, 4], [1, 11, 5], [4, 3, 2], None, None, [8, 0, 0], [10, 0, 0])
    assert packing.arena_bytes == 7


def test_three_arcs_around_a_circle_need_three_places(pack: Pack) -> None:
    packing = pack([0, 1, 2], [2, 3, 3], [1, 1, 1], None, None, [0, 0, 0], [0, 0, 1])
    assert packing.lower_bound_bytes == 2
    assert packing.arena_bytes == 3
    assert packing.proven


def test_the_same_buffers_get_the_same_offsets_again() -> None:
    start = [(7 * i) % 50 for i in range(300)]
    end = [s + 1 + (11 * i) % 23 for i, s in enumerate(start)]
    buffers = Buffers(start, end, [1 + (13 * i) % 97 for i in range(300)])
    first, second = (plan_buffers(buffers, Effort("fast")) for _ in range(2))
    assert first.offsets.tolist() == second.offsets.tolist()
    assert (first.method, first.proven) == (second.method, second.proven)


def test_what_cannot_be_planned_is_refused_with_a_sentence() -> None:
    with pytest.raises(PlanError, match=r"\bsize\b.*\."):
        plan([0], [1], [-1])
    with pytest.raises(PlanError, match=r"\balignment\b.*\."):
        plan([0], [1], [1], [0])
    with pytest.raises(PlanError, match=r"\balign.*\."):
        plan([0], [1], [1], [4], [6])
    with pytest.raises(PlanError, match=r"0\b.*\b1\b.*overlap.*\."):
        plan([0, 1], [2, 3], [4, 4], None, [0, 3])
    with pytest.raises(PlanError, match=r"spans.*overlap.*\."):
        plan([0], [5], [4], None, None, [4], [6])


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected 2 rows in the column size, got 1"):
        Buffers([0, 0], [1, 1], [1])
