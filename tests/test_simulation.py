"""The simulator: literal answers of the default allocator, and a slow oracle over random events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from caching_oracle import CachingOracle
from hypothesis import given, settings
from hypothesis import strategies as st

from et_replay.errors import OutOfMemoryError, UndefinedBehaviorError, UsageError
from et_replay.events import (
    Action,
    AllocationEvents,
    BlockState,
    SegmentState,
    pool_number,
)
from et_replay.simulation import Simulator

KIB = 2**10
MIB = 2**20
GIB = 2**30


def columns(*rows: tuple[Action, int, int]) -> AllocationEvents:
    """Return events of (action, storage, size) on stream 0."""
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    zeros = np.zeros(len(rows), dtype=np.int64)
    action = table[:, 0].astype(np.int8)
    return AllocationEvents(action, table[:, 1], table[:, 2], zeros, zeros, zeros[:0])


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (19 * MIB + 1, 20 * MIB, 20 * MIB),
        (6 * GIB + 1, 6 * GIB + 512, 6 * GIB + 2 * MIB),
    ],
)
def test_first_request_takes_a_rounded_block_of_a_segment(
    size: int, allocated: int, reserved: int
) -> None:
    simulator = Simulator()
    simulator.allocate(0, size)
    assert (simulator.allocated, simulator.active) == (allocated, allocated)
    assert simulator.reserved == reserved
    assert simulator.statistics().requested_bytes == size


def test_rest_of_exactly_1_mib_is_not_split_off() -> None:
    simulator = Simulator()
    simulator.allocate(0, 11 * MIB)
    assert simulator.allocated == 12 * MIB
    simulator.free(0)
    simulator.allocate(1, 11 * MIB - 512)
    assert simulator.allocated == 11 * MIB - 512


def test_small_and_large_requests_share_no_segment() -> None:
    simulator = Simulator()
    simulator.allocate(0, 2 * MIB)
    simulator.allocate(1, 512)
    assert simulator.statistics().segments == 2
    assert simulator.reserved == 22 * MIB


def test_best_fit_takes_the_smallest_free_block() -> None:
    simulator = Simulator()
    for storage, size in enumerate((40 * MIB, 30 * MIB, 50 * MIB)):
        simulator.allocate(storage, size)
    wanted = simulator.address(1)
    for storage in range(3):
        simulator.free(storage)
    simulator.allocate(3, 25 * MIB)
    assert simulator.address(3) == wanted


def test_freed_neighbours_merge_and_serve_a_larger_request() -> None:
    simulator = Simulator()
    for storage in range(4):
        simulator.allocate(storage, 5 * MIB)
    assert simulator.statistics().segments == 1
    first = simulator.address(1)
    simulator.free(1)
    simulator.free(2)
    simulator.allocate(4, 9 * MIB)
    assert simulator.address(4) == first
    assert simulator.reserved == 20 * MIB


def test_streams_share_no_free_blocks() -> None:
    simulator = Simulator()
    simulator.allocate(0, 30 * MIB, stream=0)
    simulator.free(0)
    simulator.allocate(1, 30 * MIB, stream=7)
    assert simulator.reserved == 60 * MIB


def test_empty_cache_returns_whole_segments_only() -> None:
    simulator = Simulator()
    simulator.allocate(0, 30 * MIB)
    simulator.allocate(1, 2 * MIB)
    simulator.allocate(2, 2 * MIB)
    simulator.free(0)
    simulator.free(1)
    simulator.empty_cache()
    assert simulator.reserved == 20 * MIB
    assert simulator.statistics().device_frees == 1


def test_full_device_releases_the_cache_and_retries() -> None:
    simulator = Simulator(device_memory=100 * MIB)
    simulator.allocate(0, 60 * MIB)
    simulator.free(0)
    simulator.allocate(1, 80 * MIB)
    statistics = simulator.statistics()
    assert simulator.reserved == 80 * MIB
    assert (statistics.alloc_retries, statistics.ooms) == (1, 0)
    assert (statistics.device_allocs, statistics.device_frees) == (2, 1)
    assert statistics.peak_reserved_bytes == 80 * MIB


def test_capacity_is_a_wall_to_the_byte() -> None:
    Simulator(device_memory=64 * MIB).allocate(0, 64 * MIB)
    with pytest.raises(OutOfMemoryError):
        Simulator(device_memory=64 * MIB - 1).allocate(0, 64 * MIB)


def test_out_of_memory_carries_its_figures_in_one_sentence() -> None:
    simulator = Simulator(device_memory=GIB)
    simulator.allocate(0, 700 * MIB)
    simulator.allocate(1, 2 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        simulator.allocate(2, 400 * MIB + 1)
    error = caught.value
    assert str(error) == (
        "Out of memory: a request of 400 MiB (a segment of 402 MiB) does not fit the device of"
        " 1.00 GiB, of which 702 MiB are allocated and 18.0 MiB are reserved but unallocated."
    )
    assert (error.requested, error.capacity) == (400 * MIB + 1, GIB)
    assert (error.allocated, error.reserved) == (702 * MIB, 720 * MIB)
    assert (error.largest_free, error.event) == (18 * MIB, None)
    assert simulator.statistics().ooms == 1


def test_simulation_goes_on_after_out_of_memory() -> None:
    simulator = Simulator(device_memory=32 * MIB)
    with pytest.raises(OutOfMemoryError):
        simulator.allocate(0, 64 * MIB)
    simulator.allocate(0, 32 * MIB)
    assert simulator.allocated == 32 * MIB


def test_events_run_in_parts_and_name_the_row_that_fails() -> None:
    simulator = Simulator(device_memory=64 * MIB)
    events = columns(
        (Action.ALLOC, 0, 40 * MIB),
        (Action.FREE, 0, 40 * MIB),
        (Action.ALLOC, 1, 50 * MIB),
        (Action.ALLOC, 2, 20 * MIB),
    )
    simulator.run(events, 0, 1)
    assert simulator.allocated == 40 * MIB
    with pytest.raises(OutOfMemoryError) as caught:
        simulator.run(events, 1)
    assert caught.value.event == 3
    assert simulator.allocated == 50 * MIB


def test_sizeless_and_unknown_storages_hold_nothing() -> None:
    simulator = Simulator()
    simulator.allocate(0, 0)
    simulator.free(0)
    simulator.free(12345)
    assert simulator.address(0) == 0
    assert simulator.statistics().segments == 0


def test_peaks_start_again_from_the_current_values() -> None:
    simulator = Simulator()
    simulator.allocate(0, 30 * MIB)
    simulator.free(0)
    simulator.reset_peaks()
    statistics = simulator.statistics()
    assert (statistics.peak_allocated_bytes, statistics.peak_reserved_bytes) == (0, 30 * MIB)


def test_a_live_storage_is_not_allocated_again() -> None:
    simulator = Simulator()
    simulator.allocate(5, 512)
    with pytest.raises(ValueError, match="Storage 5 is allocated again before it was freed"):
        simulator.allocate(5, 512)


def test_what_cannot_be_simulated_is_refused() -> None:
    known = "native, expandable, stalloc, direct, ideal"
    with pytest.raises(UsageError, match=f"Expected an allocator among {known}, got 'fast'"):
        Simulator("fast")
    with pytest.raises(UsageError, match="Only native, expandable and stalloc have settings"):
        Simulator("ideal:max_split_size_mb:64")
    with pytest.raises(UsageError, match=r"max_split_size_mb: expected at least 20 .*, got 5;"):
        Simulator("native:max_split_size_mb:5")
    with pytest.raises(UsageError, match=r"torch version from 2\.7 to 2\.14, got '2\.6'"):
        Simulator(torch_version="2.6")
    with pytest.raises(UsageError, match="fraction must lie between 0 and 1"):
        Simulator(fraction=1.5)
    with pytest.raises(UsageError, match="up to 1 PiB, got -1 bytes"):
        Simulator(device_memory=-1)
    with pytest.raises(ValueError, match="must not be negative"):
        Simulator().allocate(0, -1)
    with pytest.raises(UndefinedBehaviorError, match="Event 0 has the unknown action 77"):
        Simulator().run(columns((77, 0, 512)))  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="outside the 1 events"):
        Simulator().run(columns((Action.ALLOC, 0, 512)), 0, 2)


def test_a_cache_emptied_within_a_capture_is_undefined_however_the_events_are_run() -> None:
    events = columns((Action.POOL_BEGIN, 2**32, 0), (Action.EMPTY_CACHE, -1, 0))
    within = "The cache cannot be emptied within a capture"
    with pytest.raises(UndefinedBehaviorError, match=within):
        Simulator(torch_version="2.7").run(events, keep_going=True)
    with pytest.raises(UndefinedBehaviorError, match=within):
        Simulator(torch_version="2.7").timeline_of(events)
    with pytest.raises(UndefinedBehaviorError, match=within):
        Simulator(torch_version="2.7").addresses_of(events)


def test_settings_and_versions_change_what_is_reserved() -> None:
    reserved = {}
    for allocator in ("native", "native:large_segment_size_mb:40", "expandable", "direct", "ideal"):
        simulator = Simulator(allocator)
        simulator.allocate(0, 3 * MIB + 1)
        simulator.allocate(1, 100)
        reserved[allocator] = simulator.reserved
    assert reserved == {
        "native": 22 * MIB,
        "native:large_segment_size_mb:40": 42 * MIB,
        "expandable": 22 * MIB,
        "direct": 6 * MIB,
        "ideal": 3 * MIB + 512 + 512,
    }


def test_a_fraction_limits_and_is_named_in_the_sentence() -> None:
    simulator = Simulator(device_memory=GIB, fraction=0.5)
    simulator.allocate(0, 512 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"device of 1\.00 GiB limited to 512 MiB, of which"):
        simulator.allocate(1, 2 * MIB)


def test_keep_going_collects_the_rows_that_fail() -> None:
    simulator = Simulator(device_memory=64 * MIB)
    events = columns(
        (Action.ALLOC, 0, 40 * MIB),
        (Action.ALLOC, 1, 50 * MIB),
        (Action.FREE, 1, 50 * MIB),
        (Action.OUT_OF_MEMORY, -1, 30 * MIB),
        (Action.OUT_OF_MEMORY, -1, 4 * MIB),
        (Action.ALLOC, 2, 60 * MIB),
    )
    simulator.run(events, keep_going=True)
    assert [failure.event for failure in simulator.failures] == [1, 5]
    assert simulator.failures[0].requested == 50 * MIB
    assert simulator.unexpected == [4]
    assert simulator.allocated == 40 * MIB


def test_a_block_in_use_by_another_stream_is_held_until_its_free_completes() -> None:
    simulator = Simulator()
    events = columns(
        (Action.ALLOC, 0, 12 * MIB),
        (Action.FREE_REQUESTED, 0, 12 * MIB),
        (Action.ALLOC, 1, 12 * MIB),
        (Action.FREE_COMPLETED, 0, 12 * MIB),
        (Action.ALLOC, 2, 12 * MIB),
    )
    addresses = simulator.addresses_of(events)
    assert addresses[2] != addresses[0]
    assert addresses[4] == addresses[0] == addresses[3]


def test_a_private_pool_gives_back_after_its_release() -> None:
    simulator = Simulator()
    pool = pool_number((0, 5))
    events = columns(
        (Action.POOL_BEGIN, pool, 0),
        (Action.ALLOC, 0, 30 * MIB),
        (Action.POOL_END, pool, 0),
        (Action.FREE, 0, 30 * MIB),
        (Action.EMPTY_CACHE, -1, 0),
        (Action.POOL_RELEASE, pool, 0),
        (Action.EMPTY_CACHE, -1, 0),
    )
    simulator.run(events, 0, 5)
    assert simulator.segments()[0].pool == (0, 5)
    simulator.run(events, 5)
    assert simulator.segments() == ()


def test_the_trace_says_what_happened_in_order() -> None:
    simulator = Simulator(record_trace=True)
    simulator.allocate(0, 5 * MIB)
    simulator.free(0)
    simulator.empty_cache()
    assert [(entry.action, entry.size) for entry in simulator.trace()] == [
        ("segment_alloc", 20 * MIB),
        ("alloc", 5 * MIB),
        ("free_requested", 5 * MIB),
        ("free_completed", 5 * MIB),
        ("segment_free", 20 * MIB),
    ]


def state(address: int, *blocks: tuple[int, int], expandable: bool = False) -> SegmentState:
    """Return a large segment of blocks (size, storage)."""
    states = []
    end = address
    for size, storage in blocks:
        states.append(BlockState(end, size, size if storage >= 0 else 0, storage))
        end += size
    return SegmentState(address, end - address, 0, False, expandable, (0, 0), tuple(states))


@pytest.mark.parametrize("allocator", ["native", "expandable"])
def test_what_was_reserved_before_is_taken_over(allocator: str) -> None:
    base = 0x7F1200000000
    expandable = allocator == "expandable"
    start = state(base, (4 * MIB, 0), (6 * MIB, -1), (10 * MIB, 1), expandable=expandable)
    simulator = Simulator(allocator, start=[start])
    assert (simulator.allocated, simulator.reserved) == (14 * MIB, 20 * MIB)
    simulator.free(0)
    simulator.allocate(2, 10 * MIB)
    assert simulator.address(2) == base
    simulator.free(1)
    simulator.free(2)
    simulator.empty_cache()
    assert simulator.reserved == 0


def test_segments_come_out_as_they_went_in() -> None:
    first = Simulator("expandable")
    for storage, size in enumerate((3 * MIB, 700, 30 * MIB, 5 * MIB, 100)):
        first.allocate(storage, size)
    first.free(2)
    first.free(1)
    second = Simulator("expandable", start=first.segments())
    assert second.segments() == first.segments()
    for simulator in (first, second):
        simulator.allocate(9, 29 * MIB)
        simulator.allocate(10, 90 * MIB)
    assert second.segments() == first.segments()


def test_a_start_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="do not fit the device memory"):
        Simulator(device_memory=10 * MIB, start=[state(2**40, (20 * MIB, 0))])
    with pytest.raises(UsageError, match="Storage 0 has two blocks"):
        Simulator(start=[state(2**40, (10 * MIB, 0), (10 * MIB, 0))])
    gap = state(2**40, (10 * MIB, 0), (10 * MIB, 1))
    broken = SegmentState(2**40, 20 * MIB, 0, False, False, (0, 0), gap.blocks[1:])
    with pytest.raises(UsageError, match=r"has a gap at 0x10000000000"):
        Simulator(start=[broken])


def test_segments_to_start_with_that_overlap_are_refused() -> None:
    one, other = state(2**40, (20 * MIB, 0)), state(2**40 + 10 * MIB, (20 * MIB, 1))
    with pytest.raises(UsageError, match=r"at 0x10000000000 and 0x10000a00000 overlap"):
        Simulator(start=[other, one])


def test_free_segments_side_by_side_in_a_range_are_one_block() -> None:
    """Torch tells what is mapped side by side as one segment; a damaged history may not."""
    free = [
        SegmentState(at, 40 * MIB, 0, False, True, (0, 0), (BlockState(at, 40 * MIB, 0, -1),))
        for at in (2**40, 2**40 + 40 * MIB)
    ]
    simulator = Simulator("expandable", start=free)

    simulator.allocate(0, 100 * MIB)  # for which 20 MiB more are mapped behind them
    assert simulator.segments() == (state(2**40, (100 * MIB, 0), expandable=True),)
    simulator.free(0)
    simulator.empty_cache()
    assert simulator.segments() == ()


SIZES = st.one_of(
    st.sampled_from([1, 512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 512, 10 * MIB, 19 * MIB]),
    st.integers(1, 64 * KIB),
    st.integers(1, 30 * MIB),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), SIZES, st.sampled_from([0, 0, 0, 2**40])),
        st.tuples(st.just("free"), st.integers(0, 30), st.just(0)),
        st.tuples(st.sampled_from(["empty"]), st.just(0), st.just(0)),
    ),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, capacity=st.integers(0, 150 * MIB))
def test_every_address_is_the_oracle_s(
    steps: Sequence[tuple[str, int, int]], capacity: int
) -> None:
    simulator, oracle = Simulator(device_memory=capacity), CachingOracle(capacity)
    live: list[int] = []
    for storage, (verb, number, stream) in enumerate(steps):
        if verb == "empty":
            simulator.empty_cache()
            oracle.empty_cache()
        elif verb == "free" and live:
            freed = live.pop(number % len(live))
            simulator.free(freed)
            oracle.free(freed)
        elif verb == "allocate" and oracle.allocate(storage, number, stream):
            simulator.allocate(storage, number, stream)
            live.append(storage)
        elif verb == "allocate":
            with pytest.raises(OutOfMemoryError):
                simulator.allocate(storage, number, stream)
        assert simulator.reserved == oracle.reserved
    expected = oracle.live()
    assert {storage: simulator.address(storage) for storage in live} == {
        storage: address for storage, (address, _) in expected.items()
    }
    assert simulator.allocated == sum(size for _, size in expected.values())


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(SIZES, max_size=60), keep=st.integers(1, 8))
def test_columns_and_single_calls_agree(sizes: list[int], keep: int) -> None:
    rows: list[tuple[Action, int, int]] = []
    for storage, size in enumerate(sizes):
        rows.append((Action.ALLOC, storage, size))
        if storage >= keep:
            rows.append((Action.FREE, storage - keep, sizes[storage - keep]))
    whole, single = Simulator(), Simulator()
    whole.run(columns(*rows))
    for action, storage, size in rows:
        if action is Action.ALLOC:
            single.allocate(storage, size)
        else:
            single.free(storage)
    assert whole.statistics() == single.statistics()
    assert all(whole.address(s) == single.address(s) for s in range(len(sizes)))
