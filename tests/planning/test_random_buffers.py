"""Random buffers: few against the true optimum, many against the bound and plain first fit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_oracle import blocks_of, smallest_arena
from planning_baselines import arena_of, first_fit_by_size, first_fit_by_start
from planning_instances import full_rectangle, instance_of

from et_replay.errors import PlanError
from et_replay.planning import Buffers, Effort, Packing, plan_buffers

Pack = Callable[..., Packing]


class Row(NamedTuple):
    start: int
    end: int
    size: int
    alignment: int = 1
    offset: int = -1
    again_start: int = 0
    again_end: int = 0


@st.composite
def rows(draw: st.DrawFn, *, plain: bool) -> Row:
    """Draw a buffer; one that is not plain may be aligned, fixed, or live twice."""
    edges = sorted(draw(st.lists(st.integers(0, 9), min_size=4, max_size=4)))
    size = draw(st.integers(0, 9))
    if plain:
        return Row(edges[0], edges[2], size)
    alignment = draw(st.sampled_from((1, 1, 2, 3, 4, 8)))
    fixed = draw(st.integers(0, 19)) == 0
    offset = alignment * draw(st.integers(0, 12 // alignment)) if fixed else -1
    if draw(st.integers(0, 3)) == 0:
        return Row(edges[0], edges[1], size, alignment, offset, edges[2], edges[3])
    return Row(edges[0], edges[2], size, alignment, offset)


@settings(max_examples=300, deadline=None)
@given(st.lists(rows(plain=True), min_size=1, max_size=7))
def test_up_to_seven_intervals_get_their_smallest_arena(pack: Pack, some: list[Row]) -> None:
    columns = list(zip(*some, strict=True))
    optimum = smallest_arena(blocks_of(*columns))
    for level in ("fast", "best"):
        packing = pack(*columns, level=level)
        assert packing.lower_bound_bytes <= optimum <= packing.arena_bytes
        assert not packing.proven or packing.arena_bytes == optimum
    assert packing.arena_bytes == optimum
    assert packing.proven


@settings(max_examples=300, deadline=None)
@given(st.lists(rows(plain=False), min_size=1, max_size=7))
def test_up_to_seven_of_any_kind_get_their_smallest_arena(pack: Pack, some: list[Row]) -> None:
    columns = list(zip(*some, strict=True))
    optimum = smallest_arena(blocks_of(*columns))
    if optimum is None:
        with pytest.raises(PlanError, match="overlap"):
            plan_buffers(Buffers(*columns), Effort("best"))
        return
    for level in ("fast", "best"):
        packing = pack(*columns, level=level)
        assert packing.lower_bound_bytes <= optimum <= packing.arena_bytes
        assert not packing.proven or packing.arena_bytes == optimum
    assert packing.arena_bytes == optimum
    assert packing.proven


@pytest.mark.parametrize("seed", range(12))
def test_many_are_never_worse_than_first_fit(pack: Pack, seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.randint(1, 10 ** (2 + seed % 3)) for _ in range(draw.choice((5, 1000)))]
    longest = draw.choice((3, 40, 200))
    table = []
    for _ in range(400):
        start = draw.randrange(200)
        table.append((start, start + draw.randint(1, longest), draw.choice(sizes)))
    instance = instance_of(table)
    plain = (first_fit_by_size(instance), first_fit_by_start(instance))
    best = pack(*instance, timeout=1).arena_bytes
    assert best <= min(arena_of(instance, offsets) for offsets in plain)


# Sparse ones leave times in which nothing lives.
@pytest.mark.parametrize(("count", "longest"), [(250, 1000), (60, 4), (12, 6)])
@pytest.mark.parametrize("seed", range(6))
def test_many_of_every_kind_are_valid(pack: Pack, seed: int, count: int, longest: int) -> None:
    draw = random.Random(seed)
    some = []
    for index in range(count):
        births = sorted(draw.sample(range(1000), 2))
        edges = [
            births[0],
            draw.randint(births[0] + 1, min(births[0] + longest, births[1])),
            births[1],
            draw.randint(births[1] + 1, births[1] + longest),
        ]
        alignment = draw.choice((1, 1, 8, 24, 512))
        again = edges[2:] if draw.random() < 0.2 else (0, 0)
        # Fixed ones lie one above the other, so that none overlap.
        offset = 24 * 512 * index if draw.random() < 0.02 else -1
        some.append(Row(*edges[:2], draw.randint(0, 24 * 512), alignment, offset, *again))
    packing = pack(*zip(*some, strict=True), timeout=1)
    assert packing.arena_bytes >= packing.lower_bound_bytes > 0


@pytest.mark.parametrize("seed", range(8))
def test_a_small_full_rectangle_is_put_together_again(pack: Pack, seed: int) -> None:
    instance, _ = full_rectangle(seed, 40 + 10 * (seed % 4), capacity=64 * 1024, ticks=64 * 1024)
    assert pack(*instance).arena_bytes == 64 * 1024
