"""Requests that do not say whose they are find their rows of a plan; what a run takes then."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from followed_runs import simulate_run
from following_oracle import FollowingOracle, Request, Wanted
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_rows import BASE, CELL, Event, FollowedRows, Row, columns, plan_columns

from et_replay.errors import OutOfMemoryError
from et_replay.events import Action, AllocationEvents, PlanColumns
from et_replay.planning import Buffers, lifetimes, plan_buffers
from et_replay.simulation import Simulator

LARGEST = 32
"""Cells, of what is asked for at first."""
ROOM = LARGEST + 6
"""Cells of a place: what is asked for grows by one and a half up to four times."""


def follower(rows: Sequence[Wanted], begins: Sequence[int], marked: bool = True) -> Simulator:
    """Return a simulator whose address for a request tells the row, or that there is none.

    No two rows share a place and none is ever idle, so all else comes from behind the arena.
    """
    period = max(1, len(rows))
    places = [Row(n, n * ROOM, ROOM, n, period, wanted.stream) for n, wanted in enumerate(rows)]
    columns = plan_columns(places, period)
    simulator = Simulator("stalloc", 2**40, plan=columns)
    simulator.follow(FollowedRows.of(columns, rows, begins, marked))
    return simulator


def row_of(simulator: Simulator, size: int, stream: int, rows: int) -> int | None:
    simulator.allocate(0, size, stream)
    place, rest = divmod(simulator.address(0) - BASE, ROOM * CELL)
    simulator.free(0)
    assert place >= rows or rest == 0
    return place if 0 <= place < rows else None


Mark = int
Step = Request | Mark


@st.composite
def lists_and_requests(
    draw: st.DrawFn,
) -> tuple[list[Wanted], list[int], list[Step]]:
    """Draw a list, and what comes of it: with parts dropped, added, moved or of other sizes."""
    kinds = [Wanted(CELL * (1 + size), stream) for size in range(6) for stream in range(2)]
    layer = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=12))
    rows: list[Wanted] = []
    begins = [0]
    for _ in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(1, 8))):
            own = draw(st.lists(st.sampled_from(kinds), max_size=6))
            rows += [*layer, *own]
        begins.append(len(rows))
    begins.pop()
    varying = draw(st.sets(st.integers(0, len(rows) - 1), max_size=len(rows) // 4))
    rows = [row._replace(varies=n in varying) for n, row in enumerate(rows)]
    steps: list[Step] = []
    marked = draw(st.booleans())
    bounds = [*begins, len(rows)]
    for turn in range(draw(st.integers(1, 4))):
        iteration = min(turn, len(begins) - 1)
        if marked and turn:
            steps.append(turn)
        part = [row[:2] for row in rows[bounds[iteration] : bounds[iteration + 1]]]
        steps += draw(disturbed(part))
    return rows, begins, steps


@st.composite
def disturbed(draw: st.DrawFn, part: list[Request]) -> list[Request]:
    steps = list(part)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(steps)))
        length = draw(st.sampled_from([1, 2, 5, 20, 90]))
        match draw(st.sampled_from(["drop", "add", "repeat", "swap", "resize"])):
            case "drop":
                del steps[at : at + length]
            case "add":
                other = st.tuples(st.integers(1, LARGEST * CELL), st.integers(0, 2))
                steps[at:at] = draw(st.lists(other, max_size=5))
            case "repeat":
                steps[at:at] = steps[max(0, at - length) : at]
            case "swap":
                steps[at : at + length] = draw(st.permutations(steps[at : at + length]))
            case "resize":
                steps[at : at + length] = [
                    (size + 3 * CELL // 2, stream) for size, stream in steps[at : at + length]
                ]
    return steps


@settings(max_examples=400, deadline=None)
@given(lists_and_requests(), st.booleans())
def test_requests_are_the_rows_that_the_oracle_finds(
    drawn: tuple[list[Wanted], list[int], list[Step]], marked: bool
) -> None:
    rows, begins, steps = drawn
    simulator, oracle = follower(rows, begins, marked), FollowingOracle(rows, begins, marked)
    resynchronisations = 0
    for number, step in enumerate(steps):
        if isinstance(step, int):
            figures = simulator.begin_iteration(step)
            oracle.begin_iteration(step)
            resynchronisations += figures.resynchronisations
        else:
            assert row_of(simulator, *step, len(rows)) == oracle.take(*step), number
    resynchronisations += simulator.begin_iteration(0).resynchronisations
    assert resynchronisations == oracle.resynchronisations


def tensor_job(batch: int, draw: random.Random) -> Iterator[Event]:
    """Yield an iteration: layers whose sizes are of the batch, and others that are of no batch."""
    names = itertools.count(draw.randrange(2**40) << 16)
    live: list[Event] = []
    for layer in range(12):
        for size in (4096, 1000 * batch, 700 * batch, 512 * (layer + 1)):
            name = next(names)
            yield (Action.ALLOC, name, size * 100, 0)
            live.append((Action.FREE, name, size * 100, 0))
        yield live.pop(-2)
    for _ in range(12):
        name = next(names)
        yield (Action.ALLOC, name, 900 * batch * 100, 0)
        yield live.pop()
        yield (Action.FREE, name, 900 * batch * 100, 0)
        yield live.pop()
        yield live.pop()


def job(batches: Sequence[int], seed: int = 0) -> tuple[AllocationEvents, list[int]]:
    """Return the events of a job of such iterations, and where they end."""
    draw = random.Random(seed)
    rows: list[Event] = []
    ends = []
    for batch in batches:
        rows += tensor_job(batch, draw)
        ends.append(len(rows))
    return columns(rows), ends[:-1]


def planned_job(batch: int = 8) -> FollowedRows:
    """Plan the iteration of a batch as the planner does."""
    events, _ = job([batch])
    life = lifetimes(events)
    plan = plan_buffers(Buffers(life.start, life.end, life.size, life.alignment))
    wanted = [Wanted(size) for size in life.size.tolist()]
    rows = [np.arange(len(life)), plan.offsets, life.size, life.start, life.end, life.stream]
    table = PlanColumns(*rows, arena=plan.arena_bytes, period=life.ticks)
    return FollowedRows.of(table, wanted)


def test_another_batch_size_is_served_and_the_next_iteration_is_planned() -> None:
    plan = planned_job()
    events, ends = job([8, 8, 5, 8, 11, 8])
    outcome = simulate_run(events, ends, plan)
    served = [figures.planned.requests for figures in outcome.iterations]
    assert [served[k] for k in (0, 1, 3, 5)] == [60] * 4
    assert [outcome.iterations[k].unmatched.requests for k in (0, 1, 3, 5)] == [0] * 4
    assert all(outcome.iterations[k].unmatched.requests >= 30 for k in (2, 4))
    assert not outcome.failures


def test_the_first_request_of_the_next_iteration_is_matched() -> None:
    plan = planned_job()
    events, ends = job([5, 8])
    both = simulate_run(events, ends, plan)
    simulator = Simulator("stalloc", plan=plan.columns)
    simulator.follow(plan)
    simulator.run(events, 0, ends[0])
    simulator.begin_iteration(1)
    simulator.run(events, ends[0], ends[0] + 1)
    assert simulator.begin_iteration(2).planned.requests == 1
    assert both.iterations[1].planned.requests == 60


def test_without_marks_the_last_iteration_follows_itself() -> None:
    plan = replace(planned_job(), marked=False)
    events, ends = job([8, 8, 8])
    outcome = simulate_run(events, ends, plan)
    assert [figures.planned.requests for figures in outcome.iterations] == [60] * 3
    disturbed, ends = job([8, 5, 8, 8])
    outcome = simulate_run(disturbed, ends, plan)
    assert outcome.iterations[2].planned.requests >= 45
    assert outcome.iterations[3].planned.requests == 60


def test_figures_of_other_allocators_are_those_of_their_iterations() -> None:
    events, ends = job([8, 5])
    large, small = simulate_run(events, ends, allocator="native").iterations
    assert (large.fallback.requests, small.fallback.requests) == (60, 60)
    assert small.peak_allocated_bytes < large.peak_allocated_bytes
    assert small.peak_reserved_bytes == large.peak_reserved_bytes == small.reserved_bytes
    assert (large.planned.requests, large.expected, large.unmatched.requests) == (0, 0, 0)


@pytest.mark.parametrize(
    ("unplanned", "reserved"),
    [
        ([0, 64, 0, 0, 0], [4, 68, 68, 68, 4]),  # after two iterations without it
        ([64, 0, 64, 0, 64], [68, 68, 68, 68, 68]),
        ([64, 64, 64, 64, 64], [68, 68, 68, 68, 68]),
        ([64, 0, 50, 0, 0], [68, 68, 68, 68, 68]),
        ([18, 0, 0, 0, 0], [22, 22, 22, 22, 22]),  # not worth waiting for the device
        ([64, 0, 0, 64, 0], [68, 68, 68, 68, 68]),
        ([64, 0, 0, 0, 64], [68, 68, 68, 4, 68]),
    ],
)
def test_what_an_iteration_out_of_the_plan_took_goes_back(
    unplanned: list[int], reserved: list[int]
) -> None:
    mib = 2**20
    table = plan_columns([Row(0, 0, 4 * mib // CELL, 0, 1)], period=2)
    plan = FollowedRows.of(table, [Wanted(4 * mib)])
    rows: list[Event] = []
    ends = []
    for size in unplanned:
        storages = ((0, 4 * mib), (1, size * mib)) if size else ((0, 4 * mib),)
        rows += [(Action.ALLOC, storage, size, 0) for storage, size in storages]
        rows += [(Action.FREE, storage, size, 0) for storage, size in storages]
        ends.append(len(rows))
    outcome = simulate_run(columns(rows), ends[:-1], plan)
    assert [figures.peak_reserved_bytes // mib for figures in outcome.iterations] == reserved


def test_streams_are_named_by_the_order_of_their_first_requests() -> None:
    events, ends = job([8, 8])
    moved = replace(events, stream=events.stream + 94_000)
    plan = planned_job()
    elsewhere = replace(
        plan, stream=plan.stream + 77, columns=replace(plan.columns, stream=plan.stream + 77)
    )
    outcome = simulate_run(moved, ends, elsewhere)
    assert [figures.planned.requests for figures in outcome.iterations] == [60] * 2


@pytest.mark.parametrize("seed", range(20))
def test_no_two_live_blocks_share_a_byte(seed: int) -> None:
    draw = random.Random(seed)
    plan = planned_job()
    simulator = Simulator("stalloc", 24 * 2**20, plan=plan.columns)
    simulator.follow(plan)
    live: dict[int, tuple[int, int]] = {}
    for iteration in range(1, 8):
        steps = list(tensor_job(draw.choice([8, 8, 5, 11]), draw))
        for step, event in enumerate(steps):
            if draw.random() < 0.1:
                other = draw.randrange(len(steps))
                steps[step], steps[other] = steps[other], event
        for action, storage, size, _ in steps:
            if action == Action.FREE:
                simulator.free(storage)
                live.pop(storage, None)
                continue
            with contextlib.suppress(OutOfMemoryError):
                simulator.allocate(storage, size)
                begin = simulator.address(storage)
                for low, high in live.values():
                    assert begin + size <= low or high <= begin
                live[storage] = begin, begin + size
        if draw.random() < 0.8:
            simulator.begin_iteration(iteration)


def test_an_iteration_of_misses_costs_a_few_times_one_of_hits() -> None:
    sizes = [CELL * (1 + number % 300) for number in range(100_000)]
    simulator = Simulator("stalloc", 2**50)
    simulator.follow(
        FollowedRows.of(plan_columns([], 1), [Wanted(size) for size in sizes], [0], True)
    )
    events = [
        columns(row for size in order for row in ((0, 1, size, 0), (1, 1, size, 0)))
        for order in (sizes, sizes[::-1], [size + 1 for size in sizes])
    ]
    times = []
    for each in events:
        best = float("inf")
        for turn in range(3):
            simulator.begin_iteration(turn)
            start = time.perf_counter()
            simulator.run(each)
            best = min(best, time.perf_counter() - start)
        times.append(best)
    assert max(times) < 8 * times[0], times
