"""What a run is served by: the plan of an iteration that repeats, and the order of its requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pytest
from made_histories import Row, events
from planning.event_lines import events_of

from et_replay.errors import PlanError
from et_replay.events import Action, AllocationEvents
from et_replay.planning import (
    Plan,
    RunPlan,
    StorageClass,
    coverage,
    find_iterations,
    lifetimes,
    plan_events,
    run_plan,
)
from et_replay.planning.run_plan import fault_of_run

MIB = 2**20


@dataclass(frozen=True)
class Request:
    """One of an iteration: how many requests it lives, and in which iterations it comes."""

    size: int
    life: int
    varies: bool = False
    comes: Sequence[int] = range(100)


@dataclass(frozen=True)
class MadeJob:
    """A job with what is true of it: its events, and the ticks at which its iterations end.

    `kinds` says of each storage what it is for: "weight", "exact", "varying" or "optional".
    """

    events: AllocationEvents
    ends: tuple[int, ...]
    kinds: dict[int, str]

    def plan(self) -> Plan:
        return plan_events(self.events, iterations=self.ends, marked=True)


def made_job(requests: Sequence[Request], iterations: int, seed: int = 0) -> MadeJob:
    """Run `requests` in order, each freed before the one that comes `life` requests later."""
    draw = random.Random(seed)
    rows: list[Row] = [(Action.ALLOC, 0, 4 * MIB)]
    kinds, sizes, ends = {0: "weight"}, {0: 4 * MIB}, []
    due: dict[int, list[int]] = {}
    for iteration in range(iterations):
        for place, request in enumerate(requests):
            now = iteration * len(requests) + place
            for storage in due.pop(now, []):
                rows.append((Action.FREE, storage, sizes[storage]))
            if iteration not in request.comes:
                continue
            storage = len(kinds)
            factor = draw.choice((1.1, 1.3, 1.7)) * (1 + iteration / 7) if request.varies else 1
            kinds[storage] = "varying" if request.varies else "exact"
            kinds[storage] = "optional" if len(request.comes) < 100 else kinds[storage]
            sizes[storage] = int(request.size * factor)
            rows.append((Action.ALLOC, storage, sizes[storage]))
            due.setdefault(now + request.life, []).append(storage)
        ends.append(len(rows) + 1)
    return MadeJob(events(*rows), tuple(ends), kinds)


def random_job(seed: int) -> MadeJob:
    """Make a job of which some storages cross iterations, live for several, vary, or come seldom.

    Sizes are told apart by their last digits, so that what is the same request is beyond doubt.
    """
    draw = random.Random(seed)
    count = draw.randint(10, 30)
    requests = []
    for number in range(count):
        size = draw.choice((1, 2, 5, 20)) * 65536 + number
        life = draw.choice((1, 2, 5, count // 2, count, 2 * count + 3))
        # Between them stands what always comes: what varies is told by its place alone.
        varies = number % 4 == 1 and draw.random() < 0.8
        seldom = number % 4 == 3 and draw.random() < 0.4
        comes = (draw.choice((2, 3)),) if seldom else range(100)
        requests.append(Request(size, min(life, 8) if varies else life, varies, comes))
    return made_job(requests, iterations=7, seed=seed)


def unrolled(run: RunPlan, iterations: int) -> list[tuple[int, int, range]]:
    """List start, end and bytes of all that lives in the head and so many iterations, slowly."""
    columns = run.columns
    rows: dict[int, list[int]] = {}
    for row, storage in enumerate(columns.storage.tolist()):
        rows.setdefault(storage, []).append(row)
    lives = []
    for instances in rows.values():
        for iteration in range(iterations):
            row = instances[iteration % len(instances)]
            start, end, offset = (
                int(column[row]) for column in (columns.start, columns.end, columns.offset)
            )
            if start < 0 and iteration > 0:
                continue
            if start < 0 and end >= columns.period:  # for good
                end = iterations * columns.period
            if offset >= 0:
                place = range(offset, offset + int(columns.size[row]))
                shift = iteration * columns.period
                lives.append((start + shift, end + shift, place))
    return lives


def overlaps(lives: Sequence[tuple[int, int, range]]) -> list[object]:
    return [
        (one, other)
        for one, other in combinations(lives, 2)
        if max(one[0], other[0]) < min(one[1], other[1])
        and max(one[2].start, other[2].start) < min(one[2].stop, other[2].stop)
    ]


@pytest.mark.parametrize("seed", range(25))
def test_storages_that_live_together_never_overlap_in_any_iteration(seed: int) -> None:
    run = run_plan(random_job(seed).plan())
    copies = int(np.bincount(run.columns.storage).max())

    for iterations in range(1, copies + 3):
        assert overlaps(unrolled(run, iterations)) == []
    assert fault_of_run(run) == ""


@pytest.mark.parametrize("seed", range(25))
def test_a_recording_served_in_the_order_of_the_plan_gets_its_places(seed: int) -> None:
    job = random_job(seed)
    plan = job.plan()
    run = run_plan(plan)
    lives, columns = plan.lifetimes, run.columns
    bounds = [0, *job.ends]
    served: set[int] = set()

    for iteration, (begin, end) in enumerate(pairwise(bounds)):
        k = min(iteration, len(run.begins) - 1)
        stop = run.begins[k + 1] if k + 1 < len(run.begins) else len(run)
        place = run.begins[k]
        for row in np.flatnonzero((lives.start >= begin) & (lives.start < end)).tolist():
            if lives.storage_class[row] == StorageClass.UNMATCHED:
                continue
            assert place < stop
            assert run.varies[place] or run.size[place] == lives.size[row]
            instances = np.flatnonzero(columns.storage == run.storage[place])
            turn = (iteration - len(run.begins) + 1) % len(instances)
            assert columns.offset[instances[turn]] == plan.offset[row]
            served.add(row)
            place += 1
        assert place == stop

    for row, storage in enumerate(lives.storage.tolist()):
        if job.kinds[storage] == "exact":
            assert row in served
            assert plan.covered[row]


@pytest.mark.parametrize("seed", range(25))
def test_what_varies_and_what_comes_seldom_is_told_apart(seed: int) -> None:
    job = random_job(seed)
    plan = job.plan()
    lives = plan.lifetimes

    later = lives.start >= job.ends[1]
    for row in np.flatnonzero(later).tolist():
        kind = job.kinds[int(lives.storage[row])]
        varies = lives.storage_class[row] == StorageClass.VARYING
        assert varies == (kind == "varying")
        assert (lives.storage_class[row] == StorageClass.UNMATCHED) == (kind == "optional")


def test_the_requests_come_by_iteration_and_the_last_one_repeats() -> None:
    job = made_job([Request(MIB, 1), Request(2 * MIB, 1), Request(3 * MIB, 4)], iterations=5)
    run = run_plan(job.plan())

    # The weight and iteration 0, iteration 1, and iteration 2, which is the one that repeats.
    assert run.begins == (0, 4, 7)
    assert (run.size // MIB).tolist() == [4, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert run.storage.tolist() == list(range(10))
    assert not run.varies.any()
    assert run.marked
    assert run.columns.period == 3


def test_what_lives_longer_than_an_iteration_has_a_row_for_each_instance() -> None:
    job = made_job([Request(MIB, 1), Request(2 * MIB, 1), Request(3 * MIB, 7)], iterations=6)
    run = run_plan(job.plan())
    rows = run.columns.storage == run.storage[-1]

    assert np.count_nonzero(rows) == 3
    assert len(set(run.columns.offset[rows].tolist())) == 3
    assert run.columns.start[rows].tolist() == [2, 2, 2]
    assert run.columns.end[rows].tolist() == [9, 9, 9]


def test_what_varies_has_no_place_but_its_time_is_known() -> None:
    job = made_job(
        [Request(MIB, 3), Request(5000, 2, varies=True), Request(2 * MIB, 1), Request(700, 1)],
        iterations=5,
    )
    run = run_plan(job.plan())

    assert run.varies.tolist() == [False] + 3 * [False, True, False, False]
    (row,) = np.flatnonzero(run.columns.storage == run.begins[-1] + 1)
    assert run.columns.offset[row] == -1
    assert (run.columns.start[row], run.columns.end[row]) == (1, 3)


def test_what_comes_in_most_iterations_has_no_place_but_one_size() -> None:
    job = made_job(
        [Request(MIB, 3), Request(5000, 2, comes=(1, 2, 3, 5)), Request(2 * MIB, 1)], iterations=6
    )
    plan = job.plan()
    run = run_plan(plan)
    (row,) = np.flatnonzero(run.columns.storage == run.begins[-1] + 1)

    assert run.size[run.begins[-1] :].tolist() == [MIB, 5000, 2 * MIB]
    assert not run.varies.any()
    assert run.columns.offset[row] == -1
    assert (run.columns.start[row], run.columns.end[row]) == (1, 3)
    assert plan.covered[plan.lifetimes.size != 5000].all()
    shares = {fate.name: (share.requests, share.bytes) for fate, share in coverage(plan).items()}
    assert shares == {"PLANNED": (2, 3 * MIB), "SOMETIMES": (1, 5000)}


def test_what_repeats_is_counted_by_what_becomes_of_it() -> None:
    lines = [f"+w {4 * MIB}, +g {MIB}"]
    for i in range(5):
        gradient = f"g{i - 1}" if i else "g"
        seldom = ["+s 4002", "-s"] if i == 2 else []
        first = [f"+v{i} {2000 + 600 * i}", f"-v{i}", f"+a{i} 1000", f"-{gradient}"]
        lines += [*first, f"+g{i} {MIB}", *seldom, f"-a{i}", f"+leak{i} 3000"]
    events = events_of(*lines)
    ends = np.flatnonzero((events.action == Action.ALLOC) & (events.size == 3000)) + 2
    plan = plan_events(events, iterations=ends.tolist(), marked=True)

    shares = {fate.name: (share.requests, share.bytes) for fate, share in coverage(plan).items()}
    assert shares == {
        "PLANNED": (1, 1000),
        "CROSSING": (1, MIB),
        "VARYING": (1, 3200),
        "SELDOM": (1, 4002),
        "NEVER_FREED": (1, 3000),
    }


def test_another_batch_size_in_one_iteration_is_not_what_repeats() -> None:
    sizes = [6 * MIB, 5 * MIB, 3 * MIB, 2 * MIB]
    lines = [f"+w {4 * MIB}"]
    for i in range(6):
        batch = [size // 2 if i == 2 else size for size in sizes]
        names = [f"{name}{i}" for name in "abcd"]
        lines += [f"+{name} {size}" for name, size in zip(names, batch, strict=True)]
        lines += [f"-{name}" for name in reversed(names)]
    plan = plan_events(events_of(*lines), iterations=[10, 18, 26, 34, 42, 50], marked=True)
    run = run_plan(plan)

    # Iterations 1 and 2 are before the one that repeats, as 2 is another.
    assert run.begins == (0, 5, 9, 13)
    assert (run.size[13:] // MIB).tolist() == [6, 5, 3, 2]
    assert not run.varies.any()
    assert plan.covered.all()
    assert plan.arena_bytes == (4 + 6 + 5 + 3 + 2) * MIB


def test_where_all_iterations_differ_they_all_count() -> None:
    lines = [f"+w {4 * MIB}"]
    for i in range(5):
        lines += [
            f"+g{i} {MIB}, +a{i} {(i + 2) * 1000}, +b{i} {(i + 2) * 3000}, -a{i}, -b{i}, -g{i}"
        ]
    plan = plan_events(events_of(*lines), iterations=[8, 14, 20, 26, 32], marked=True)
    run = run_plan(plan)

    assert run.begins == (0, 4, 7)
    assert run.varies.tolist() == [False] + 3 * [False, True, True]
    assert plan.arena_bytes <= 6 * MIB


def test_streams_that_interleave_otherwise_each_time_are_told_apart() -> None:
    lines = [f"+w {4 * MIB}"]
    for i in range(4):
        steps = [f"+a{i} 1000", f"+x{i} 2000 @7", f"+b{i} 3000", f"+y{i} 4000 @7"]
        if i % 2:
            steps = [steps[1], steps[0], steps[3], steps[2]]
        lines += [*steps, f"-a{i}", f"-b{i}", f"-x{i}", f"-y{i}"]
    plan = plan_events(events_of(*lines), iterations=[10, 18, 26, 34], marked=True)

    assert plan.covered.all()
    assert fault_of_run(run_plan(plan)) == ""


def test_a_plan_of_no_iterations_cannot_be_run() -> None:
    with pytest.raises(PlanError, match="knows of no iterations that a run could repeat"):
        run_plan(plan_events(events_of("+a 512, -a")))


def test_iterations_that_were_found_are_not_marked() -> None:
    job = made_job([Request(MIB, 1), Request(2 * MIB, 1), Request(3 * MIB, 1)], iterations=5)
    plan = plan_events(job.events, iterations=find_iterations(lifetimes(job.events)))

    assert not run_plan(plan).marked
