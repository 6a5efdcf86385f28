"""Buffers that nobody has: sizes and ticks at their limits, a million at once, deep nests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from planning_instances import full_rectangle

from et_replay.errors import PlanError
from et_replay.planning import Buffers, Effort, Packing, plan_buffers

Pack = Callable[..., Packing]
HUGE = 2**60
MILLION = 1_000_000
LEVELS: tuple[Literal["fast", "best"], ...] = ("fast", "best")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [1, 2, 1000, 20_000])
def test_equal_buffers_are_stacked(pack: Pack, count: int, level: str) -> None:
    packing = pack([3] * count, [8] * count, [640] * count, level=level)
    assert packing.arena_bytes == 640 * count
    assert packing.proven


def test_only_buffers_without_size_or_life_need_no_arena(pack: Pack) -> None:
    for life, size in ((1, 0), (0, 2**40), (0, 0)):
        packing = pack(list(range(1000)), [tick + life for tick in range(1000)], [size] * 1000)
        assert packing.arena_bytes == 0
        assert packing.proven


@pytest.mark.parametrize("level", LEVELS)
def test_sizes_near_the_limit_are_planned(pack: Pack, level: str) -> None:
    assert pack([0, 0], [2, 2], [HUGE, HUGE], level=level).arena_bytes == 2 * HUGE
    assert pack([0, 0], [2, 2], [HUGE, HUGE - 1], level=level).arena_bytes == 2 * HUGE - 1
    packing = pack([0, 1, 2, 3], [2, 3, 4, 5], [HUGE - 1, HUGE, HUGE - 3, HUGE - 7], level=level)
    assert packing.arena_bytes == 2 * HUGE - 1
    assert pack([0, 0], [1, 1], [HUGE - 1, 5], [512, 4096], level=level).arena_bytes > HUGE


def test_a_small_buffer_beside_a_huge_one_is_not_rounded_away(pack: Pack) -> None:
    assert pack([0, 0, 1], [2, 1, 2], [HUGE, 1, 2]).arena_bytes == HUGE + 2


def test_a_fixed_offset_near_the_limit_is_kept(pack: Pack) -> None:
    packing = pack([0, 0], [2, 2], [100, HUGE], None, [HUGE, -1])
    assert packing.offsets.tolist() == [HUGE, 0]
    assert packing.arena_bytes == HUGE + 100


@pytest.mark.parametrize(
    ("size", "count"), [(HUGE, 3), (2**61 + 1, 1), (2**62, 2), (2**63 - 1, 1), (2**63 - 1, 5)]
)
def test_more_than_can_be_added_is_refused(size: int, count: int) -> None:
    with pytest.raises(PlanError):
        plan_buffers(Buffers([0] * count, [2] * count, [size] * count), Effort("fast"))


def test_a_fixed_offset_that_cannot_be_added_is_refused() -> None:
    with pytest.raises(PlanError):
        plan_buffers(Buffers([0], [1], [HUGE], None, [2**63 - 2]), Effort("fast"))


def test_an_alignment_beyond_the_sizes_is_kept_or_refused(pack: Pack) -> None:
    assert pack([0, 0], [1, 1], [1, 1], [2**40, 2**40]).arena_bytes == 2**40 + 1
    with pytest.raises(PlanError):
        plan_buffers(Buffers([0] * 9, [1] * 9, [1] * 9, [2**62] * 9), Effort("best"))


def test_ticks_at_the_limits_of_their_type_are_ordinary(pack: Pack) -> None:
    first, last = -(2**63), 2**63 - 1
    packing = pack([first, first, 0], [last, 0, last], [3, 2, 2])
    assert packing.arena_bytes == 5


@pytest.mark.parametrize("level", LEVELS)
def test_a_million_of_one_tick_one_after_the_other_share_their_bytes(
    level: Literal["fast", "best"],
) -> None:
    ticks = np.arange(MILLION)
    sizes = 512 * (1 + ticks * 7919 % 1009)
    packing = plan_buffers(Buffers(ticks, ticks + 1, sizes), Effort(level))
    assert packing.arena_bytes == 512 * 1009
    assert packing.proven
    assert packing.offsets.min() >= 0
    assert (packing.offsets + sizes).max() == 512 * 1009
    assert packing.planning_time_ns < 20e9


@pytest.mark.parametrize("level", LEVELS)
def test_a_million_in_one_tick_are_stacked(level: Literal["fast", "best"]) -> None:
    ticks = np.zeros(MILLION, dtype=np.int64)
    sizes = 512 * (1 + np.arange(MILLION) * 7919 % 1009)
    packing = plan_buffers(Buffers(ticks, ticks + 1, sizes), Effort(level))
    assert packing.arena_bytes == sizes.sum()
    order = np.argsort(packing.offsets)
    ends = (packing.offsets + sizes)[order]
    assert (ends[:-1] <= packing.offsets[order][1:]).all()
    assert packing.planning_time_ns < 20e9


@pytest.mark.parametrize("level", LEVELS)
def test_nests_stairs_and_combs_reach_the_load(pack: Pack, level: str) -> None:
    count = 3000
    ticks = np.arange(count)
    sizes = 1 + ticks * 7919 % 1009
    nest = pack(ticks, 2 * count - ticks, sizes, level=level)
    assert nest.arena_bytes == sizes.sum()
    stairs = pack(ticks, ticks + 50, np.full(count, 7), level=level)
    assert stairs.arena_bytes == 7 * 50
    comb = pack(
        np.concatenate([ticks, [0]]),
        np.concatenate([ticks + 1, [count]]),
        np.concatenate([sizes, [10**6]]),
        level=level,
    )
    assert comb.arena_bytes == 10**6 + sizes.max()


@pytest.mark.parametrize("pieces", [300, 5000])
def test_a_timeout_ends_the_search_with_a_valid_plan(pack: Pack, pieces: int) -> None:
    instance, _ = full_rectangle(7, pieces)
    began = time.perf_counter()
    packing = plan_buffers(Buffers(*instance), Effort("best", timeout=0.5))
    assert time.perf_counter() - began < 2
    assert packing.arena_bytes < 2 * 2**20


@pytest.mark.parametrize("pieces", [300, 5000])
def test_a_timeout_that_is_over_at_once_still_gives_a_valid_plan(pack: Pack, pieces: int) -> None:
    instance, _ = full_rectangle(7, pieces)
    assert pack(*instance, timeout=1e-6).arena_bytes < 4 * 2**20
