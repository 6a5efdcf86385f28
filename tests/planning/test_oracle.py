"""The oracles agree with slower ones, and with answers known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_oracle import (
    Block,
    blocks_of,
    find_fault,
    peak_load,
    smallest_arena,
    unroll,
)
from planning_instances import full_rectangle, random_cycle


@st.composite
def blocks(draw: st.DrawFn, ticks: int = 5, size: int = 3) -> Block:
    edges = sorted(draw(st.lists(st.integers(0, ticks), min_size=4, max_size=4)))
    spans = ((edges[0], edges[1]), (edges[2], edges[3]))
    return Block(
        size=draw(st.integers(0, size)),
        spans=spans if draw(st.booleans()) else spans[:1],
        alignment=draw(st.sampled_from((1, 1, 2, 3))),
    )


def smallest_arena_of_all(parts: Sequence[Block]) -> int | None:
    """Try every offset of every block in arenas that grow."""
    largest = sum(part.size + part.alignment for part in parts)
    largest += max((part.offset + part.size for part in parts if part.offset >= 0), default=0)
    for arena in range(peak_load(parts), largest + 1):
        places = [[part.offset] if part.offset >= 0 else range(arena + 1) for part in parts]
        if any(find_fault(parts, offsets, arena) == "" for offsets in product(*places)):
            return arena
    return None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_search_over_orders_finds_what_trying_all_offsets_finds(data: st.DataObject) -> None:
    parts = data.draw(st.lists(blocks(), max_size=3))
    if parts and data.draw(st.booleans()):
        at = parts[0].alignment * data.draw(st.integers(0, 2))
        parts[0] = parts[0]._replace(offset=at)
    assert smallest_arena(parts) == smallest_arena_of_all(parts)


def test_fixed_blocks_that_overlap_have_no_arena() -> None:
    here, there = Block(4, ((0, 2),), offset=0), Block(4, ((1, 3),), offset=2)
    assert smallest_arena([here, there]) is None
    assert smallest_arena([here, there._replace(spans=((2, 3),))]) == 6


def test_three_arcs_around_a_circle_need_more_than_lives_at_once() -> None:
    arcs = [Block(1, ((0, 2),)), Block(1, ((1, 3),)), Block(1, ((2, 3), (0, 1)))]
    assert peak_load(arcs) == 2
    assert smallest_arena(arcs) == 3


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(blocks(ticks=12, size=4), st.integers(0, 12)), max_size=12))
def test_the_sweep_finds_a_fault_exactly_where_the_pairs_do(
    placed: list[tuple[Block, int]],
) -> None:
    parts = [block._replace(alignment=1) for block, _ in placed]
    offsets = [offset for _, offset in placed]
    by_pairs = find_fault(parts, offsets, 20, pairs=True)
    assert bool(find_fault(parts, offsets, 20, pairs=False)) == bool(by_pairs)


@pytest.mark.parametrize(
    ("offsets", "arena", "fault"),
    [
        ((0, 4), 8, ""),
        ((0, 3), 8, "0 and 1 overlap"),
        ((0, 4), 7, "1 takes [4, 8) of an arena of 7 bytes"),
        ((-4, 4), 8, "0 takes [-4, 0) of an arena of 8 bytes"),
        ((0,), 8, "1 offsets for 2 blocks"),
    ],
)
def test_a_fault_is_named(offsets: tuple[int, ...], arena: int, fault: str) -> None:
    parts = blocks_of([0, 1], [2, 3], [4, 4])
    assert find_fault(parts, offsets, arena, pairs=True) == fault
    assert find_fault(parts, offsets, arena, pairs=False) == fault


def test_alignment_and_fixed_offsets_are_checked() -> None:
    assert find_fault([Block(1, ((0, 1),), alignment=4)], [2], 8) == "0 lies at 2, no multiple of 4"
    assert find_fault([Block(1, ((0, 1),), offset=3)], [2], 8) == "0 lies at 2, not at 3"
    assert find_fault([Block(0, ((0, 1),), offset=3)], [2], 8) == ""


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_rectangle_is_a_valid_plan_without_a_hole(seed: int) -> None:
    instance, offsets = full_rectangle(seed, 10 + 20 * seed, spared=0.1 * (seed % 3))
    parts = blocks_of(*instance)
    assert find_fault(parts, offsets.tolist(), 1 << 20, pairs=True) == ""
    assert peak_load(parts) == 1 << 20
    if seed % 3 == 0:
        assert sum(part.size * (part.spans[0][1] - part.spans[0][0]) for part in parts) == 1 << 40


def test_a_window_is_unrolled_and_its_head_is_not() -> None:
    births = unroll([0, 10, 15], [12, 13, 21], [1, 2, 3], window=(10, 16), iterations=3)
    assert [(b.buffer, b.iteration, b.block.spans[0]) for b in births] == [
        (0, 0, (0, 12)),
        (1, 0, (10, 13)),
        (1, 1, (16, 19)),
        (1, 2, (22, 25)),
        (2, 0, (15, 21)),
        (2, 1, (21, 27)),
        (2, 2, (27, 33)),
    ]


def test_random_cycles_cross_outlive_and_come_before_their_window() -> None:
    cycle = random_cycle(seed=1, count=200)
    start, end, _ = cycle.buffers
    period = cycle.end - cycle.begin
    born = start >= cycle.begin
    assert (born & (end > cycle.end)).sum() > 20
    assert (born & (end - start > period)).sum() > 3
    assert (~born & (end > cycle.end)).sum() > 3
    assert not (start >= cycle.end).any()
