"""Lifetimes of storages: from their allocation to when their memory may be used again."""

from __future__ import annotations

import pytest
from planning.event_lines import events_of

from et_replay.events import AllocationEvents, BlockState, SegmentState
from et_replay.planning import StorageClass, lifetimes

RESIDENT, LASTING, PASSING, PRIVATE = list(StorageClass)[:4]


def lives(
    events: AllocationEvents, segments: tuple[SegmentState, ...] = ()
) -> list[tuple[int, int, int, StorageClass]]:
    found = lifetimes(events, segments)
    columns = found.storage, found.start, found.end, found.storage_class
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(storage, start, end, StorageClass(kind)) for storage, start, end, kind in rows]


def test_a_storage_lives_from_its_allocation_to_its_free() -> None:
    assert lives(events_of("+a 512, +b 100, -a, +c 8, -c")) == [
        (0, 1, 3, PASSING),
        (1, 2, 6, LASTING),
        (2, 4, 5, PASSING),
    ]


def test_other_streams_use_is_waited_for() -> None:
    assert lives(events_of("+a 512, ~a, +b 8, !a, -b")) == [(0, 1, 4, PASSING), (1, 3, 5, PASSING)]


def test_what_takes_no_memory_is_left_out() -> None:
    assert lives(events_of("+a 0, +b 8, -b, -a")) == [(1, 2, 3, PASSING)]


def test_a_storage_that_comes_again_has_two_lives() -> None:
    assert lives(events_of("+a 8, -a, +b 8, -b, +a 8, -a")) == [
        (0, 1, 2, PASSING),
        (1, 3, 4, PASSING),
        (0, 5, 6, PASSING),
    ]


def test_a_private_pool_is_told_apart() -> None:
    assert lives(events_of("( 3, +a 8, ) 3, +b 8, -a, -b")) == [
        (0, 2, 5, PRIVATE),
        (1, 4, 6, PASSING),
    ]


def test_what_is_there_before_the_first_event_lives_from_tick_0() -> None:
    block = BlockState(4096, 1024, 1000, 7)
    free = BlockState(5120, 1024, 0, -1)
    segment = SegmentState(4096, 2048, 0, True, False, (0, 0), (block, free))
    assert lives(events_of("+a 8, -a"), (segment,)) == [(7, 0, 3, RESIDENT), (0, 1, 2, PASSING)]


def test_inputs_before_the_first_operation_are_resident() -> None:
    events = events_of("+a 8, +b 8, -b")
    steps = AllocationEvents(**{**events.__dict__, "steps": events.storage[:2] + 1})
    assert [kind for *_, kind in lives(steps)] == [RESIDENT, PASSING]


@pytest.mark.parametrize("size", [1, 512, 513])
def test_sizes_are_those_asked_for(size: int) -> None:
    assert lifetimes(events_of(f"+a {size}")).size.tolist() == [size]
