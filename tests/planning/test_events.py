"""Plans of allocation events: what may share bytes, within a stream and between iterations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from planner_oracle import Block, find_fault
from planning_instances import random_cycle

from et_replay.events import Action, AllocationEvents, BlockState, SegmentState
from et_replay.planning import Effort, Plan, is_by_stream, plan_events

KIB = 1024
Row = tuple[Action, int, int, int]
"""Action, storage, size and stream."""


def events_of(rows: Iterable[Row]) -> AllocationEvents:
    table = np.array(list(rows), dtype=np.int64).reshape(-1, 4)
    action, storage, size, stream = (np.ascontiguousarray(column) for column in table.T)
    nodes = np.full(len(table), -1, dtype=np.int64)
    return AllocationEvents(action.astype(np.int8), storage, size, stream, nodes, nodes[:0])


def take(storage: int, size: int = KIB, stream: int = 0) -> Row:
    return Action.ALLOC, storage, size, stream


def drop(storage: int, size: int = KIB, stream: int = 0) -> Row:
    return Action.FREE, storage, size, stream


def places(plan: Plan) -> dict[int, tuple[int, int]]:
    """Return the range of each planned storage, by storage."""
    return {
        int(storage): (int(at), int(at + size))
        for storage, at, size in zip(
            plan.lifetimes.storage, plan.offset, plan.lifetimes.size, strict=True
        )
        if at >= 0
    }


def share(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_a_freed_storage_is_reused_on_its_stream() -> None:
    plan = plan_events(events_of([take(1), drop(1), take(2), drop(2)]))
    assert plan.arena_bytes == KIB
    assert share(*places(plan).values())
    assert not plan.notes


def test_a_freed_storage_is_not_reused_by_another_stream_and_the_plan_says_so() -> None:
    rows = [take(1), drop(1), take(2, stream=7), drop(2, stream=7), take(3), drop(3)]
    plan = plan_events(events_of(rows))
    place = places(plan)
    assert not share(place[1], place[2])
    assert share(place[1], place[3])
    assert plan.arena_bytes == 2 * KIB
    assert any("stream" in note for note in plan.notes)
    assert is_by_stream(plan)


def test_streams_share_memory_if_they_may_and_the_plan_says_so() -> None:
    rows = [take(1), drop(1), take(2, stream=7), drop(2, stream=7), take(3), drop(3)]
    plan = plan_events(events_of(rows), share_streams=True)
    assert plan.arena_bytes == plan.lower_bound_bytes == KIB
    assert not is_by_stream(plan)
    assert any("2 streams, which share memory" in note for note in plan.notes)


def test_streams_are_kept_apart_in_time_where_that_costs_nothing() -> None:
    peak = 8 * [take(8, 100 * KIB), drop(8, 100 * KIB)]
    rows = [*peak, take(1), drop(1), take(2, stream=7), drop(2, stream=7), take(3), drop(3)]
    place = places(plan_events(events_of(rows), share_streams=True))
    assert share(place[8], place[2])
    assert not share(place[1], place[2])
    assert not share(place[2], place[3])


def test_memory_that_another_stream_still_uses_is_not_reused() -> None:
    pending = [take(1), (Action.RECORD_STREAM, 1, KIB, 7), (Action.FREE_REQUESTED, 1, KIB, 0)]
    done = [(Action.FREE_COMPLETED, 1, KIB, 0)]
    place = places(plan_events(events_of([*pending, take(2), *done, take(3)])))
    assert not share(place[1], place[2])
    assert share(place[1], place[3])


def test_sizes_are_rounded_to_the_allocators_alignment() -> None:
    plan = plan_events(events_of([take(1, 1), take(2, 513), take(3, 512)]))
    assert plan.arena_bytes == 512 + 1024 + 512
    assert all(at % 512 == 0 for at, _ in places(plan).values())


def test_what_was_there_before_the_first_event_keeps_its_bytes() -> None:
    block = BlockState(address=4096, size=2 * KIB, requested=2 * KIB, storage=9)
    segment = SegmentState(4096, 2 * KIB, 0, False, False, (0, 0), (block,))
    rows = [take(1), drop(1), drop(9, 2 * KIB), take(2, 3 * KIB)]
    plan = plan_events(events_of(rows), [segment])
    place = places(plan)
    assert not share(place[9], place[1])
    assert plan.arena_bytes == 3 * KIB


def test_private_pools_are_left_out_and_the_plan_says_so() -> None:
    rows = [
        take(1),
        (Action.POOL_BEGIN, 5, 0, -1),
        take(2),
        (Action.POOL_END, 5, 0, -1),
        take(3),
    ]
    plan = plan_events(events_of(rows))
    assert set(places(plan)) == {1, 3}
    assert any("private pool" in note for note in plan.notes)


def test_a_storage_that_is_never_freed_is_not_overwritten() -> None:
    place = places(plan_events(events_of([take(1), take(2), drop(2), take(3)])))
    assert not share(place[1], place[2])
    assert not share(place[1], place[3])


def repeated(seed: int, iterations: int) -> tuple[AllocationEvents, list[int]]:
    """Return the events of a random head and window, and the ticks at which iterations begin.

    The first ones are left out: in them dies what was there before.
    """
    cycle = random_cycle(seed, count=40, alignment=512)
    period = cycle.end - cycle.begin
    moments = []
    for buffer, (start, end, size) in enumerate(
        zip(*(c.tolist() for c in cycle.buffers), strict=True)
    ):
        for turn in range(iterations if start >= cycle.begin else 1):
            born, dead = start + turn * period, end + turn * period
            if size and born < dead:
                # At one tick what ends comes first.
                name = turn * 1000 + buffer
                moments += [(dead, 0, drop(name, size)), (born, 1, take(name, size))]
    moments = sorted(moment for moment in moments if moment[0] < cycle.begin + iterations * period)
    ticks = [tick for tick, _, _ in moments]
    begins = [cycle.begin + turn * period for turn in range(4, iterations)]
    rows = [int(row) for row in np.searchsorted(ticks, begins)]
    return events_of(row for _, _, row in moments), [1 + row for row in rows]


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_a_plan_of_one_iteration_holds_in_all_that_follow(seed: int, streams: int) -> None:
    """Also where storages of several streams share memory."""
    events, iterations = repeated(seed, iterations=12)
    events = replace(events, stream=events.storage % 1000 % streams)
    effort = Effort("fast", timeout=0.5)
    plan = plan_events(events, effort=effort, iterations=iterations, share_streams=True)
    assert plan.iteration is not None
    born: dict[int, int] = {}
    gone: dict[int, int] = {}
    rows = zip(events.action.tolist(), events.storage.tolist(), strict=True)
    for tick, (action, storage) in enumerate(rows, 1):
        (born if action == Action.ALLOC else gone)[storage] = tick
    place = places(plan)
    planned = [storage for storage in born if storage in place]
    blocks = [
        Block(high - low, ((born[storage], gone.get(storage, len(events) + 1)),))
        for storage in planned
        for low, high in [place[storage]]
    ]
    offsets = [place[storage][0] for storage in planned]
    assert find_fault(blocks, offsets, plan.arena_bytes, pairs=False) == ""
    assert {storage for storage, tick in born.items() if tick >= iterations[0]} <= set(planned)
