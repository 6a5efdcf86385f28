"""Moments of small histories explained: which one, what was live then, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_histories import Row, explained, history

from et_replay.events import Action, BlockState, SegmentState
from et_replay.explain import LiveGroup, explain
from et_replay.explain.causes import causes
from et_replay.explain.explanation import Failures, Moment
from et_replay.origins import MemoryClass, Origin
from et_replay.simulation import Simulator

MIB = 2**20
ALLOC, FREE = Action.ALLOC, Action.FREE
BEGIN, END = Action.POOL_BEGIN, Action.POOL_END

WEIGHT = Origin("aten::empty", ("Model",), MemoryClass.WEIGHT)
RELU = Origin("aten::relu", ("Model", "Block"), MemoryClass.ACTIVATION)
MM = Origin("aten::mm", ("Model",), MemoryClass.ACTIVATION)


def start(*parts: tuple[int, int], stream: int = 0) -> tuple[SegmentState, ...]:
    """Return one segment of blocks of (size, storage), as a snapshot has it."""
    blocks, end = [], 2**40
    for size, storage in parts:
        blocks.append(BlockState(end, size, size, storage))
        end += size
    return (SegmentState(2**40, end - 2**40, stream, False, False, (0, 0), tuple(blocks)),)


def test_a_history_that_fits_has_no_failure_to_explain() -> None:
    assert explain(history((ALLOC, 0, 40 * MIB)), "native", 40 * MIB) is None


def test_the_first_failure_is_explained_with_the_allocator_s_figures() -> None:
    made = history(
        (ALLOC, 0, 30 * MIB, 0, 11),
        (ALLOC, 1, 4 * MIB, 0, 12),
        (ALLOC, 2, 40 * MIB, 0, 13),
        (FREE, 0, 30 * MIB, 0, 14),
        (ALLOC, 3, 90 * MIB, 0, 15),
        origins={2: MM},
    )
    explanation = explained(made, 60 * MIB)
    failure = explanation.failure
    assert failure is not None
    assert (explanation.row, failure.event, failure.node_id) == (2, 2, 13)
    assert (failure.operator, explanation.origin) == ("aten::mm", MM)
    assert failure.requested == 40 * MIB
    assert failure.capacity == 60 * MIB
    assert (failure.allocated, failure.reserved) == (34 * MIB, 50 * MIB)
    assert failure.largest_free == 16 * MIB
    assert explanation.failures == Failures(new=(2, 4))
    assert explanation.statistics.ooms == 1
    assert explanation.statistics.alloc_retries == 1


def test_the_timeline_has_what_was_held_after_each_event() -> None:
    made = history((ALLOC, 0, 30 * MIB), (ALLOC, 1, 40 * MIB), (FREE, 0, 30 * MIB))
    timeline = explained(made, 60 * MIB).timeline
    assert timeline.allocated.tolist() == [30 * MIB, 30 * MIB, 0]
    assert timeline.reserved.tolist() == [30 * MIB, 30 * MIB, 30 * MIB]


def test_a_history_without_events_is_looked_at_as_it_is() -> None:
    made = history(segments=start((30 * MIB, 0), (10 * MIB, -1)), origins={0: WEIGHT})
    explanation = explained(made, 80 * MIB)
    assert (explanation.row, explanation.failure) == (-1, None)
    assert explanation.groups == [LiveGroup(WEIGHT, 1, 30 * MIB)]
    assert explanation.statistics.reserved_bytes == 40 * MIB
    assert (explanation.reserved.requested, explanation.reserved.free) == (30 * MIB, 10 * MIB)
    assert len(explanation.timeline) == 0
    assert causes(explanation) == []


def test_a_state_has_no_request_that_its_holes_would_be_too_large_for() -> None:
    """Nothing was asked for: the hole beside the live block is a hole, whatever its size."""
    explanation = explained(history(segments=start((30 * MIB, 0), (10 * MIB, -1))), 80 * MIB)
    assert (explanation.reserved.holes, explanation.reserved.sizes) == (10 * MIB, 0)
    assert [each.free for each in explanation.pinned] == [10 * MIB]


def test_what_lived_before_may_not_fit_another_allocator() -> None:
    made = history((FREE, 0, 30 * MIB, 7), segments=start((30 * MIB, 0), stream=7))
    explanation = explained(made, 20 * MIB, "expandable")
    failure = explanation.failure
    assert failure is not None
    assert (explanation.row, failure.event, failure.requested) == (-1, None, 30 * MIB)
    assert (failure.node_id, explanation.failures.new) == (None, ())
    assert explanation.groups == []


def test_a_device_smaller_than_the_recorded_start_is_a_failure_of_native_too() -> None:
    made = history((FREE, 0, 30 * MIB), segments=start((30 * MIB, 0)))
    failure = explained(made, 20 * MIB).failure
    assert failure is not None
    assert (failure.event, failure.capacity) == (None, 20 * MIB)


def test_groups_are_live_storages_by_origin_the_largest_first() -> None:
    made = history(
        (ALLOC, 0, 20 * MIB),
        (ALLOC, 1, 10 * MIB),
        (ALLOC, 2, 12 * MIB),
        (ALLOC, 3, 512),
        (ALLOC, 4, 30 * MIB),
        (FREE, 4, 30 * MIB),
        (ALLOC, 5, 500 * MIB),
        origins={0: WEIGHT, 1: RELU, 2: RELU, 4: MM, 5: MM},
        class_rule="by hand",
    )
    explanation = explained(made, 100 * MIB)
    assert explanation.groups == [
        LiveGroup(RELU, 2, 22 * MIB),
        LiveGroup(WEIGHT, 1, 20 * MIB),
        LiveGroup(Origin("-"), 1, 512),
    ]
    assert list(explanation.classes.items()) == [
        (MemoryClass.ACTIVATION, 22 * MIB),
        (MemoryClass.WEIGHT, 20 * MIB),
        (MemoryClass.UNKNOWN, 512),
    ]
    assert sum(explanation.classes.values()) == explanation.statistics.allocated_bytes
    assert explanation.class_rule == "by hand"


def test_the_same_operation_in_two_places_makes_two_groups() -> None:
    elsewhere = dataclasses.replace(RELU, within=("Model", "Head"))
    made = history(
        (ALLOC, 0, 20 * MIB),
        (ALLOC, 1, 10 * MIB),
        (ALLOC, 2, 90 * MIB),
        origins={0: RELU, 1: elsewhere},
    )
    assert explained(made, 100 * MIB).groups == [
        LiveGroup(RELU, 1, 20 * MIB),
        LiveGroup(elsewhere, 1, 10 * MIB),
    ]
    assert explained(made, 100 * MIB).classes == {MemoryClass.ACTIVATION: 30 * MIB}


@pytest.mark.parametrize(
    ("rows", "stream", "pool"),
    [
        ([], 0, (0, 0)),
        ([(BEGIN, 9, 0, -1)], 0, (0, 9)),
        ([(BEGIN, 3 * 2**32 + 9, 0, -1)], 0, (3, 9)),
        ([(BEGIN, 9, 0, -1), (END, 9, 0, -1)], 0, (0, 0)),
        ([(BEGIN, 9, 0, 7)], 7, (0, 9)),
        ([(BEGIN, 9, 0, 7)], 0, (0, 0)),
        ([(BEGIN, 9, 0, -1), (BEGIN, 8, 0, -1)], 0, (0, 8)),
        ([(BEGIN, 9, 0, -1), (BEGIN, 8, 0, -1), (END, 8, 0, -1)], 0, (0, 9)),
        ([(BEGIN, 9, 0, -1), (BEGIN, 8, 0, 7)], 0, (0, 9)),
    ],
)
def test_the_request_s_pool_is_where_the_allocator_would_have_put_it(
    rows: list[Row], stream: int, pool: tuple[int, int]
) -> None:
    explanation = explained(history(*rows, (ALLOC, 0, 70 * MIB, stream)), 60 * MIB)
    assert (explanation.request.stream, explanation.request.pool) == (stream, pool)
    # The simulator agrees: on a device with room, the segment is of that pool and stream.
    simulator = Simulator()
    simulator.run(history(*rows, (ALLOC, 0, 70 * MIB, stream)).events)
    (made,) = simulator.segments()
    assert (made.stream, made.pool) == (stream, pool)


def test_the_peak_has_most_allocated_where_most_is_reserved() -> None:
    made = history(
        (ALLOC, 0, 20 * MIB, 0),
        (ALLOC, 1, 30 * MIB, 7),
        (FREE, 1, 30 * MIB, 7),
        (ALLOC, 2, 24 * MIB, 7),
        (FREE, 0, 20 * MIB, 0),
        origins={0: WEIGHT, 1: RELU},
    )
    explanation = explain(made, "native", 80 * MIB, moment=Moment.PEAK)
    assert explanation is not None
    assert (explanation.row, explanation.failure) == (1, None)
    assert explanation.groups == [LiveGroup(RELU, 1, 30 * MIB), LiveGroup(WEIGHT, 1, 20 * MIB)]
    assert (explanation.request.size, explanation.request.stream) == (30 * MIB, 7)
    assert causes(explanation) == []


def test_the_peak_may_lie_before_the_first_event() -> None:
    made = history(
        (FREE, 0, 40 * MIB),
        (Action.EMPTY_CACHE, -1, 0),
        (ALLOC, 1, 20 * MIB),
        segments=start((40 * MIB, 0)),
        origins={0: WEIGHT},
    )
    explanation = explain(made, "native", 80 * MIB, moment=Moment.PEAK)
    assert explanation is not None
    assert explanation.row == -1
    assert explanation.groups == [LiveGroup(WEIGHT, 1, 40 * MIB)]


SIZES = st.sampled_from([1, 512, MIB, MIB + 1, 5 * MIB, 11 * MIB, 30 * MIB])


@st.composite
def random_rows(draw: Callable[..., object]) -> list[Row]:
    rows: list[Row] = []
    live: dict[int, tuple[int, int]] = {}
    for storage, free in enumerate(draw(st.lists(st.booleans(), min_size=1, max_size=16))):
        if free and live:
            gone = draw(st.sampled_from(sorted(live)))
            rows.append((FREE, gone, *live.pop(gone)))
        else:
            live[storage] = draw(SIZES), draw(st.sampled_from([0, 7]))
            rows.append((ALLOC, storage, *live[storage]))
    return rows


def after(rows: list[Row], end: int, allocator: str, capacity: int) -> Simulator:
    simulator = Simulator(allocator, capacity)
    simulator.run(history(*rows).events, 0, end, keep_going=True)
    return simulator


@given(random_rows(), st.sampled_from(["native", "expandable", "ideal"]))
def test_the_peak_is_the_row_that_looking_at_all_of_them_finds(
    rows: list[Row], allocator: str
) -> None:
    explanation = explain(history(*rows), allocator, 2**40, moment=Moment.PEAK)
    assert explanation is not None
    states = [after(rows, end + 1, allocator, 2**40) for end in range(len(rows))]
    held = [state.allocated for state in states]
    assert explanation.row == held.index(max(held))
    assert explanation.statistics.peak_allocated_bytes == max(held)
    assert sum(group.bytes for group in explanation.groups) == states[explanation.row].active


@given(random_rows(), st.integers(1, 40))
def test_the_failure_is_the_first_row_that_does_not_fit(rows: list[Row], size: int) -> None:
    capacity = size * 2 * MIB
    explanation = explain(history(*rows), "native", capacity)
    ooms = [after(rows, end + 1, "native", capacity).statistics().ooms for end in range(len(rows))]
    failing = np.flatnonzero(np.diff([0, *ooms])).tolist()
    if not failing:
        assert explanation is None
        return
    assert explanation is not None
    assert list(explanation.failures.new) == failing
    assert explanation.row == failing[0]
    before = after(rows, failing[0] + 1, "native", capacity)
    assert explanation.failure is not None
    assert explanation.failure.allocated == before.allocated
    assert explanation.failure.reserved == before.reserved
    assert explanation.reserved.free == before.reserved - before.active
