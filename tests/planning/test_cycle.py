"""Windows that repeat: every plan is iterated ten times under the slow validator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_oracle import Span, blocks_of, find_fault, peak_load, smallest_arena, unroll
from planning_instances import Cycle, instance_of, offset_of, random_cycle
from training_lifetimes import Job, training_job

from et_replay.errors import PlanError
from et_replay.planning import Buffers, CyclicPacking, Effort, plan_buffers, plan_cycle

ITERATIONS = 10
FOREVER = 10**12


def plan(
    start: Sequence[int],
    end: Sequence[int],
    size: Sequence[int],
    window: Span,
    timeout: float = 10,
    alignment: Sequence[int] | None = None,
) -> CyclicPacking:
    """Plan, iterate ten times under the validator, and hold the bound against what then lives."""
    packing = plan_cycle(Buffers(start, end, size, alignment), *window, Effort("best", timeout))
    births = unroll(start, end, size, window, ITERATIONS, alignment)
    blocks = [birth.block for birth in births]
    offsets = [offset_of(packing, birth.buffer, birth.iteration) for birth in births]
    assert find_fault(blocks, offsets, packing.arena_bytes) == ""
    assert packing.lower_bound_bytes <= packing.arena_bytes
    assert packing.lower_bound_bytes == peak_load(blocks)
    return packing


def test_the_three_buffers_that_cross_the_boundary_never_overlap() -> None:
    # Iteration 1 is [100, 200): in iteration 2 the third lives on into the second's next life.
    packing = plan([10, 100, 180], [60, 150, 220], [1024, 1024, 512], (100, 200))
    assert packing.lower_bound_bytes == 1536
    assert packing.arena_bytes == 1536


def test_a_window_that_nothing_crosses_is_planned_like_one_iteration() -> None:
    columns = [0, 2, 4], [4, 8, 8], [2, 1, 2]
    packing = plan(*columns, (0, 8))
    assert packing.arena_bytes == 3
    assert packing.proven
    assert plan_buffers(Buffers(*columns)).arena_bytes == 3


def test_what_lives_longer_than_a_period_takes_turns() -> None:
    packing = plan([0], [25], [6], (0, 10))
    assert packing.arena_bytes == 18
    assert len({offset_of(packing, 0, iteration) for iteration in range(3)}) == 3


def test_what_lives_for_exactly_a_period_needs_one_place() -> None:
    packing = plan([3], [13], [6], (0, 10))
    assert packing.arena_bytes == 6


def test_what_was_there_before_stays_apart_while_it_lives() -> None:
    resident = plan([0, 12], [FOREVER, 18], [5, 7], (10, 20))
    assert resident.arena_bytes == 12
    gone_before = plan([0, 12], [10, 18], [5, 7], (10, 20))
    assert gone_before.arena_bytes == 7
    gone_in_the_first_iteration = plan([0, 12], [12, 18], [5, 7], (10, 20))
    assert gone_in_the_first_iteration.arena_bytes == 7


def test_the_head_does_not_meet_what_only_later_iterations_leave_over() -> None:
    # The second lives in [18, 22), [28, 32), ...: the first is gone by then.
    packing = plan([0, 18], [12, 22], [1, 1], (10, 20))
    assert packing.lower_bound_bytes == 1


def test_what_lasts_some_iterations_of_the_window_is_not_overwritten() -> None:
    packing = plan([0, 12], [47, 18], [5, 7], (10, 20))
    assert packing.arena_bytes == 12


def test_three_arcs_need_more_than_lives_at_once() -> None:
    packing = plan([0, 10, 20], [20, 30, 40], [1, 1, 1], (0, 30))
    assert packing.lower_bound_bytes == 2
    assert packing.arena_bytes == 3


def test_arcs_of_different_size_share_what_they_can() -> None:
    # From iteration 1 on the third lies beside the first in [0, 4).
    packing = plan([0, 4, 8], [4, 8, 14], [4, 6, 2], (0, 10))
    assert packing.lower_bound_bytes == packing.arena_bytes == 6
    assert smallest_arena(blocks_of([0, 4, 8], [4, 8, 10], [4, 6, 2])) == 6


def test_nothing_and_buffers_without_memory_need_no_arena() -> None:
    assert plan([], [], [], (0, 10)).arena_bytes == 0
    assert plan([0, 5, 9], [5, 5, 30], [0, 8, 0], (0, 10)).arena_bytes == 0


def test_a_window_without_length_or_with_buffers_behind_it_is_refused() -> None:
    with pytest.raises(PlanError, match=r"\[10, 10\)"):
        plan_cycle(Buffers([0], [5], [1]), 10, 10)
    with pytest.raises(PlanError, match="20"):
        plan_cycle(Buffers([20], [25], [1]), 10, 20)


@pytest.mark.parametrize("seed", range(24))
def test_random_cycles_hold_for_ten_iterations(seed: int) -> None:
    cycle = random_cycle(seed, count=20 + seed % 5 * 30, alignment=(1, 512)[seed % 2])
    alignment = [(1, 512)[seed % 2]] * len(cycle.buffers.size)
    plan(*cycle.buffers, (cycle.begin, cycle.end), 0.5, alignment)


@st.composite
def cycles(draw: st.DrawFn) -> Cycle:
    begin, period = draw(st.integers(0, 6)), draw(st.integers(1, 6))
    table = []
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, begin + period - 1))
        life = draw(st.integers(0, 2 * period + 3))
        table.append((start, start + life, draw(st.integers(0, 5))))
    return Cycle(instance_of(table), begin, begin + period)


@settings(max_examples=200, deadline=None)
@given(cycles())
def test_small_cycles_hold_for_ten_iterations(cycle: Cycle) -> None:
    plan(*cycle.buffers, (cycle.begin, cycle.end), timeout=0.1)


def test_a_training_job_repeats_in_what_one_iteration_needs() -> None:
    start, end, size = training_job(Job(layers=3, micro_batches=3, iterations=1, experts=4, seed=5))
    last = int(end.max())
    weights = int((end == last).sum())
    end = np.where(end == last, FOREVER, end)
    # A batch is fetched for the next iteration; a statistic lives until the end of that.
    packing = plan(
        np.append(start, [last - 40, last - 20]),
        np.append(end, [last + 600, 2 * last - weights - 25]),
        np.append(size, [4 << 20, 512]),
        (weights, last),
    )
    assert packing.arena_bytes <= 1.001 * packing.lower_bound_bytes
