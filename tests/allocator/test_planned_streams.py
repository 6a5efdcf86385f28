"""The allocator that serves a plan: what is not as planned, and an oracle cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_rows import BASE, CELL, Event, Row, columns, figures_of, first_fit, planned, requests
from planned_oracle import PlannedOracle

from et_replay.events import Action, AllocationEvents

PERIOD = 12
ITERATIONS = 6
LIVES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, PERIOD - 1), st.integers(1, PERIOD)),
    min_size=1,
    max_size=12,
)


def validate(events: AllocationEvents, addresses: Sequence[int]) -> None:
    """Walk through the events and hold every served range against all that are in use."""
    used: dict[int, range] = {}
    rows = zip(
        events.action.tolist(),
        events.storage.tolist(),
        events.size.tolist(),
        addresses,
        strict=True,
    )
    for action, storage, size, address in rows:
        if action == Action.ALLOC and address:
            served = range(address, address + size)
            for other in used.values():
                assert served.stop <= other.start or other.stop <= served.start
            used[storage] = served
        elif action in (Action.FREE, Action.FREE_COMPLETED):
            used.pop(storage, None)


class Step(NamedTuple):
    """Something that happens at a tick; what gives memory back comes before what takes it."""

    tick: int
    takes: bool
    storage: int
    size: int = 0

    @property
    def event(self) -> Event:
        return (Action.ALLOC if self.takes else Action.FREE), self.storage, self.size, 0


def steps_of(row: Row, iteration: int) -> list[Step]:
    shift = iteration * PERIOD
    return [
        Step(shift + row.start, True, row.storage, row.size * CELL),
        Step(shift + row.end, False, row.storage),
    ]


def disturbed(row: Row, kind: str, when: int, length: int, size: int) -> list[Step]:
    """Return what becomes of a row in iteration 1, and what comes unasked."""
    alloc, free = steps_of(row, 1)
    match kind:
        case "extra":
            return [alloc, free, Step(when, True, 99, size), Step(when + length, False, 99)]
        case "missing":
            return []
        case "late":
            return [alloc, free._replace(tick=min(free.tick + length, alloc.tick + PERIOD))]
        case "larger":
            return [alloc._replace(size=alloc.size + size), free]
        case "smaller":
            return [alloc._replace(size=max(1, alloc.size - size)), free]
    return [alloc, free]


@settings(max_examples=300, deadline=None)
@given(
    lives=LIVES,
    victim=st.integers(0, 11),
    kind=st.sampled_from(["none", "extra", "missing", "late", "larger", "smaller"]),
    when=st.integers(PERIOD, 2 * PERIOD - 1),
    length=st.integers(1, PERIOD),
    size=st.integers(1, 8 * CELL),
)
def test_after_a_disturbance_all_is_served_as_planned_again(
    lives: list[tuple[int, int, int]], victim: int, kind: str, when: int, length: int, size: int
) -> None:
    rows = [Row(i, -1, size, start, start + life) for i, (size, start, life) in enumerate(lives)]
    rows = first_fit(rows, PERIOD)
    row = rows[victim % len(rows)]
    steps = [
        step
        for iteration in range(ITERATIONS)
        for other in rows
        if (iteration, other) != (1, row)
        for step in steps_of(other, iteration)
    ]
    steps = sorted(steps + disturbed(row, kind, when, length, size), key=lambda s: s[:2])
    simulator = planned(rows, PERIOD)
    calm = sum(step.tick < 3 * PERIOD for step in steps)
    addresses = [*simulator.addresses_of(columns(step.event for step in steps[:calm]))]
    before = figures_of(simulator)
    addresses += [*simulator.addresses_of(columns(step.event for step in steps[calm:]))]
    after = figures_of(simulator)
    validate(columns(step.event for step in steps), addresses)
    for name in ("reused", "displaced", "fallback"):
        assert getattr(after, name) == getattr(before, name), "not all is served as planned again"
    if kind == "none":
        assert requests(simulator) == (len(rows) * ITERATIONS, 0, 0, 0)
    assert simulator.statistics().peak_reserved_bytes <= after.arena + after.fallback_peak_reserved


ANY_ROWS = st.lists(
    st.builds(
        lambda storage, offset, size, start, life, stream: Row(
            storage, offset, size, start, start + life, stream
        ),
        storage=st.integers(0, 7),
        offset=st.integers(-1, 11),
        size=st.integers(0, 5),
        start=st.integers(-4, 9),
        life=st.integers(1, 25),
        stream=st.sampled_from([0, 0, 7]),
    ),
    max_size=12,
)
STORAGES = st.integers(0, 11)  # of which the plan knows 8
ANY_EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just(Action.ALLOC), STORAGES, st.integers(1, 6 * CELL), st.sampled_from([0, 0, 7])
        ),
        st.tuples(
            st.sampled_from([Action.FREE, Action.FREE_REQUESTED, Action.FREE_COMPLETED]),
            STORAGES,
            st.just(0),
            st.just(0),
        ),
        st.tuples(st.just(Action.RECORD_STREAM), STORAGES, st.just(0), st.just(3)),
    ),
    max_size=60,
)


def possible(events: list[Event]) -> Iterator[Event]:
    """Leave out what no program does: a request for what lives, a free of what does not."""
    live: set[int] = set()
    waiting: set[int] = set()
    for event in events:
        action, storage, *_ = event
        if action == Action.ALLOC:
            if storage in live | waiting:
                continue
            live.add(storage)
        elif action == Action.FREE_COMPLETED:
            if storage not in waiting:
                continue
            waiting.remove(storage)
        elif storage not in live:
            continue
        elif action != Action.RECORD_STREAM:
            live.remove(storage)
            if action == Action.FREE_REQUESTED:
                waiting.add(storage)
        yield event


@settings(max_examples=500, deadline=None)
@given(rows=ANY_ROWS, drawn=ANY_EVENTS)
def test_every_place_is_the_oracle_s(rows: list[Row], drawn: list[Event]) -> None:
    simulator, oracle = planned(rows, 10, arena=16), PlannedOracle(rows, 10)
    events = columns(possible(drawn))
    addresses = simulator.addresses_of(events).tolist()
    validate(events, addresses)
    used: set[int] = set()  # by another stream
    late: list[int] = []
    for row, action in enumerate(events.action.tolist()):
        storage, size = int(events.storage[row]), int(events.size[row])
        if action == Action.ALLOC:
            while late:
                oracle.free(late.pop(0))
            cell = oracle.allocate(storage, size, int(events.stream[row]))
            inside = 0 <= addresses[row] - BASE < 16 * CELL
            assert (addresses[row] - BASE) // CELL == cell if inside else cell is None
        elif action == Action.RECORD_STREAM:
            used.add(storage)
        elif action == Action.FREE and storage in used:
            late.append(storage)
        elif action in (Action.FREE, Action.FREE_COMPLETED):
            oracle.free(storage)
        if action != Action.RECORD_STREAM:
            used.discard(storage)
    counted = requests(simulator)
    kinds = ("planned", "reused", "displaced", "fallback")
    assert counted == tuple(oracle.served.count(kind) for kind in kinds)
    assert counted[0] + counted[1] + counted[3] == np.count_nonzero(events.action == Action.ALLOC)
