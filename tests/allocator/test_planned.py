"""The allocator that serves a plan, by literal addresses."""

from __future__ import annotations

import pytest
from plan_rows import BASE, CELL, Row, columns, figures_of, plan_columns, planned, requests

from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import Action, PlanColumns, pool_number
from et_replay.simulation import PlanFigures, Served, Simulator

MIB = 2**20

TWO_AND_ONE = (Row(1, 0, 4, 0, 6), Row(2, 4, 4, 1, 3), Row(3, 4, 2, 4, 5))
#      cells 0..3      4..7
# tick 0     1
# tick 1, 2  1         2
# tick 3     1
# tick 4     1         3 in 4, 5
# tick 5     1


def test_storages_lie_where_the_plan_wants_them() -> None:
    simulator = planned(TWO_AND_ONE, period=6)
    simulator.allocate(1, 4 * CELL)
    simulator.allocate(2, 4 * CELL - 511)
    assert (simulator.address(1), simulator.address(2)) == (BASE, BASE + 4 * CELL)
    simulator.free(2)
    simulator.allocate(3, 1)
    assert simulator.address(3) == BASE + 4 * CELL
    assert (simulator.reserved, simulator.allocated) == (2 * MIB, 5 * CELL)
    assert figures_of(simulator) == PlanFigures(
        arena=2 * MIB,
        planned=Served(3, 8 * CELL - 510),
        reused=Served(0, 0),
        displaced=Served(0, 0),
        fallback=Served(0, 0),
        fallback_peak_reserved=0,
    )


def test_the_arena_is_taken_at_the_first_request_and_goes_when_nothing_lives_in_it() -> None:
    simulator = planned(TWO_AND_ONE, period=6)
    assert simulator.reserved == 0
    simulator.allocate(1, 512)
    simulator.empty_cache()
    assert simulator.reserved == 2 * MIB
    simulator.free(1)
    assert simulator.reserved == 2 * MIB
    simulator.empty_cache()
    assert simulator.reserved == 0
    simulator.allocate(1, 512)
    statistics = simulator.statistics()
    assert (statistics.segments, statistics.device_allocs, statistics.device_frees) == (1, 2, 1)


def test_what_is_not_planned_gets_the_smallest_range_that_stays_free_to_the_end() -> None:
    # From tick 1 on cells 1 to 3 and 6, 7 stay free; 0, 4 and 5 are needed again, 8 is in use.
    rows = [Row(1, 0, 8, 0, 1), Row(2, 4, 2, 2, 3), Row(3, 8, 1, 0, 9), Row(4, 0, 1, 5, 6)]
    simulator = planned(rows, period=9)
    simulator.allocate(1, 8 * CELL)
    simulator.free(1)
    simulator.allocate(10, CELL)
    simulator.allocate(11, 2 * CELL)
    simulator.allocate(12, 3 * CELL)
    assert simulator.address(10) == BASE + 6 * CELL
    assert simulator.address(11) == BASE + 1 * CELL
    assert requests(simulator) == (1, 2, 0, 1)
    simulator.free(11)
    simulator.allocate(13, 3 * CELL)
    assert simulator.address(13) == BASE + 1 * CELL


def test_between_two_iterations_only_what_is_free_all_the_time_is_idle() -> None:
    simulator = planned([Row(1, 0, 2, 0, 4), Row(2, 2, 1, 1, 2), Row(3, 3, 1, -2, -1)], period=4)
    simulator.allocate(1, CELL)
    simulator.free(1)
    simulator.allocate(10, CELL)
    assert simulator.address(10) == BASE + 3 * CELL


def test_the_known_end_of_a_storage_without_a_place_counts() -> None:
    rows = [Row(1, 0, 2, 0, 1), Row(2, 0, 2, 4, 5), Row(3, -1, 2, 1, 4), Row(4, -1, 2, 1, 5)]
    simulator = planned(rows, period=5)
    simulator.allocate(1, 2 * CELL)
    simulator.free(1)
    simulator.allocate(3, 2 * CELL)
    assert simulator.address(3) == BASE
    simulator.free(3)
    simulator.allocate(2, 2 * CELL)
    assert simulator.address(2) == BASE
    simulator.free(2)
    simulator.allocate(4, 2 * CELL)
    assert requests(simulator) == (2, 1, 0, 1)


def test_a_row_across_the_end_is_in_use_in_the_head_of_the_next_iteration() -> None:
    rows = [Row(1, 0, 1, 3, 6), Row(2, 0, 1, 2, 3), Row(3, -1, 1, 1, 2)]
    simulator = planned(rows, period=4)
    simulator.allocate(3, CELL)
    assert requests(simulator) == (0, 0, 0, 1), "the cell is not in use, but the plan needs it"
    simulator.allocate(2, CELL)
    simulator.free(2)
    simulator.allocate(1, CELL)
    assert simulator.address(1) == BASE


def test_storages_that_outlive_an_iteration_take_turns() -> None:
    rows = [Row(1, 0, 1, 1, 7), Row(1, 1, 1, 1, 7), Row(1, 5, 1, 3, 4), Row(2, 2, 3, 0, 4)]
    simulator = planned(rows, period=4)
    for iteration in range(5):
        simulator.allocate(2, 3 * CELL)
        if iteration:  # the one of the iteration before is still held
            simulator.run(columns([(Action.FREE_REQUESTED, 1, 0, 0)]))
        simulator.allocate(1, CELL)
        assert simulator.address(1) == BASE + iteration % 2 * CELL
        if iteration:
            simulator.run(columns([(Action.FREE_COMPLETED, 1, 0, 0)]))
        simulator.free(2)
    assert requests(simulator) == (10, 0, 0, 0)


def test_of_several_rows_the_one_that_begins_next_is_taken() -> None:
    rows = [Row(1, 0, 1, -3, -2), Row(1, 1, 1, 0, 1), Row(1, 2, 1, 5, 6), Row(2, 3, 1, 3, 4)]
    simulator = planned(rows, period=8)
    places = []
    for storage in (1, 1, 2, 1, 1, 2, 1):
        simulator.allocate(storage, CELL)
        places.append((simulator.address(storage) - BASE) // CELL)
        simulator.free(storage)
    assert places == [0, 1, 3, 2, 1, 3, 2]


def test_a_stream_reuses_no_memory_of_another() -> None:
    rows = [
        Row(1, 0, 2, 0, 1, stream=0),
        Row(2, 2, 2, 0, 1, stream=7),
        Row(3, 1, 1, 2, 3, stream=7),
    ]
    simulator = planned(rows, period=9)
    for storage, stream in ((1, 0), (2, 7), (10, 0), (11, 7), (12, 0), (13, 4)):
        simulator.allocate(storage, CELL, stream)
        if storage < 10:
            simulator.free(storage)
    addresses = {storage: simulator.address(storage) - BASE for storage in (10, 11, 12, 13)}
    assert addresses[10] == 0, "cell 1 is for both streams"
    assert addresses[11] == 2 * CELL
    assert addresses[12] >= 2 * MIB and addresses[13] >= 2 * MIB
    assert requests(simulator) == (2, 2, 0, 2)


def test_a_request_of_another_stream_or_too_large_is_displaced() -> None:
    simulator = planned([Row(1, 0, 4, 0, 2), Row(2, 4, 1, 1, 3)], period=4)
    simulator.allocate(1, 4 * CELL, stream=9)
    assert requests(simulator) == (0, 0, 1, 1)
    simulator.allocate(2, CELL + 1)
    assert requests(simulator) == (0, 0, 2, 2)
    simulator.free(2)
    simulator.allocate(2, CELL)
    assert simulator.address(2) == BASE + 4 * CELL


def test_requests_in_a_private_pool_are_not_planned() -> None:
    simulator = planned(TWO_AND_ONE, period=6)
    pool = pool_number((0, 5))
    simulator.run(columns([(Action.POOL_BEGIN, pool, 0, 0), (Action.ALLOC, 1, 4 * CELL, 0)]))
    assert requests(simulator) == (0, 0, 0, 1)
    assert [segment.pool for segment in simulator.segments()] == [(0, 5)]
    simulator.run(columns([(Action.POOL_END, pool, 0, 0), (Action.ALLOC, 2, 4 * CELL, 0)]))
    assert requests(simulator) == (1, 0, 0, 1)
    assert len(simulator.segments()) == 2


def test_an_arena_that_does_not_fit_the_device_fails_the_first_request() -> None:
    plan = plan_columns([Row(1, 0, 2 * MIB // CELL + 1, 0, 1)], 1)
    simulator = Simulator("stalloc", 3 * MIB, plan=plan)
    with pytest.raises(OutOfMemoryError) as caught:
        simulator.allocate(1, 700)
    assert str(caught.value).startswith(
        "Out of memory: a request of 4.00 MiB does not fit the device of"
    )
    assert caught.value.requested == 4 * MIB
    assert simulator.statistics().ooms == 1
    assert simulator.reserved == 0
    assert requests(simulator) == (0, 0, 0, 0)


def test_an_arena_beyond_all_devices_is_out_of_memory() -> None:
    plan = plan_columns([Row(1, 0, 10**18 // CELL, 0, 1), Row(2, 10**18 // CELL, 1, 0, 1)], 1)
    simulator = Simulator("stalloc", 2**50, plan=plan)
    with pytest.raises(OutOfMemoryError) as caught:
        simulator.allocate(2, 700)
    assert caught.value.requested >= 10**18


def test_a_limit_holds_for_arena_and_fallback_together() -> None:
    plan = plan_columns([Row(1, 0, 20 * MIB // CELL, 0, 1)], 1)
    simulator = Simulator("stalloc", 100 * MIB, plan=plan, fraction=0.5)
    simulator.allocate(1, 20 * MIB)
    simulator.allocate(2, 30 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"limited to 50\.0 MiB"):
        simulator.allocate(3, 2 * MIB)
    Simulator("stalloc", 100 * MIB, plan=plan, fraction=0.2).allocate(1, MIB)
    with pytest.raises(OutOfMemoryError, match=r"a request of 20\.0 MiB"):
        Simulator("stalloc", 100 * MIB, plan=plan, fraction=0.19).allocate(1, MIB)


def test_what_fits_nowhere_else_takes_what_the_plan_needs_later() -> None:
    rows = [Row(1, 0, 32 * MIB // CELL, 0, 2), Row(2, 0, 12 * MIB // CELL, 2, 4)]
    simulator = Simulator("stalloc", 48 * MIB, plan=plan_columns(rows, 4), record_trace=True)
    simulator.allocate(1, 32 * MIB)
    simulator.free(1)
    simulator.allocate(9, 22 * MIB)
    assert simulator.address(9) == BASE
    assert (simulator.reserved, simulator.statistics().ooms) == (32 * MIB, 0)
    assert "oom" not in {entry.action for entry in simulator.trace()}
    assert requests(simulator) == (1, 1, 0, 0)
    simulator.allocate(2, 12 * MIB)
    assert requests(simulator) == (1, 1, 1, 1)
    with pytest.raises(OutOfMemoryError):
        simulator.allocate(10, 12 * MIB)
    assert simulator.statistics().ooms == 1


def test_what_the_fallback_keeps_makes_room_for_the_arena() -> None:
    plan = plan_columns([Row(1, 0, 20 * MIB // CELL, 0, 1)], 1)
    simulator = Simulator("stalloc", 40 * MIB, plan=plan)
    pool = [(Action.POOL_BEGIN, 5, 0, 0), (Action.ALLOC, 9, 30 * MIB, 0), (Action.FREE, 9, 0, 0)]
    simulator.run(columns([*pool, (Action.POOL_END, 5, 0, 0), (Action.POOL_RELEASE, 5, 0, 0)]))
    simulator.allocate(1, MIB)
    assert (simulator.reserved, simulator.statistics().alloc_retries) == (20 * MIB, 1)


def test_one_set_of_counters_covers_arena_and_fallback() -> None:
    simulator = planned(TWO_AND_ONE, period=6)
    simulator.allocate(1, 4 * CELL)
    simulator.allocate(8, 30 * MIB)
    simulator.free(8)
    simulator.allocate(9, 40 * MIB)
    simulator.empty_cache()
    statistics = simulator.statistics()
    assert statistics.peak_allocated_bytes == 40 * MIB + 4 * CELL
    assert statistics.peak_reserved_bytes == 72 * MIB
    assert (statistics.reserved_bytes, statistics.segments) == (42 * MIB, 2)
    assert figures_of(simulator).fallback_peak_reserved == 70 * MIB
    simulator.reset_peaks()
    assert figures_of(simulator).fallback_peak_reserved == 40 * MIB
    assert simulator.statistics().peak_reserved_bytes == 42 * MIB


def test_segments_show_the_arena_with_its_blocks_and_gaps_before_the_fallback() -> None:
    simulator = planned(TWO_AND_ONE, period=6)
    simulator.allocate(2, 3 * CELL)
    simulator.run(columns([(Action.FREE_REQUESTED, 2, 0, 0)]))
    simulator.allocate(1, 4 * CELL)
    simulator.allocate(9, 30 * MIB)
    arena, other = simulator.segments()
    assert (arena.address, arena.size, arena.small, arena.pool) == (BASE, 2 * MIB, False, (0, 0))
    assert [(b.address, b.size, b.storage, b.active_only) for b in arena.blocks] == [
        (BASE, 4 * CELL, 1, False),
        (BASE + 4 * CELL, 3 * CELL, 2, True),
        (BASE + 7 * CELL, 2 * MIB - 7 * CELL, -1, False),
    ]
    assert [b.storage for b in other.blocks] == [9]
    stats = simulator.memory_stats()
    assert stats["inactive_split.all.current"] == 1
    assert stats["inactive_split_bytes.all.current"] == 2 * MIB - 7 * CELL


def test_the_trace_tells_of_arena_and_fallback_in_order() -> None:
    plan = plan_columns(TWO_AND_ONE, 6)
    simulator = Simulator("stalloc", 2**40, plan=plan, record_trace=True)
    simulator.allocate(1, 100)
    simulator.allocate(9, 3 * MIB)
    simulator.free(1)
    simulator.empty_cache()
    assert [(entry.action, entry.size) for entry in simulator.trace()] == [
        ("segment_alloc", 2 * MIB),
        ("alloc", 100),
        ("segment_alloc", 20 * MIB),
        ("alloc", 3 * MIB),
        ("free_requested", 100),
        ("free_completed", 100),
        ("segment_free", 2 * MIB),
    ]


def test_settings_are_those_of_the_fallback() -> None:
    simulator = Simulator("stalloc:max_split_size_mb:24")
    assert simulator.memory_stats()["max_split_size"] == 24 * MIB
    with pytest.raises(UsageError, match="max_split_size_mb: expected at least 20"):
        Simulator("stalloc:max_split_size_mb:5")


def test_a_plan_that_cannot_be_served_is_refused() -> None:
    plan = plan_columns(TWO_AND_ONE, 6)
    with pytest.raises(UsageError, match="Only stalloc serves a plan, and got it with native"):
        Simulator("native", plan=plan)
    with pytest.raises(
        UsageError, match=r"Row 1 of the plan, storage 2: it cannot live in \[4, 3\)"
    ):
        planned([Row(1, 0, 1, 0, 1), Row(2, 0, 1, 4, 3)], period=6)
    with pytest.raises(UsageError, match="columns of the plan differ in length"):
        short = PlanColumns(plan.storage, *[plan.offset[:1]] * 5, plan.arena, plan.period)
        Simulator("stalloc", plan=short)
    assert Simulator("native").plan_figures() is None
    assert figures_of(Simulator("stalloc")).arena == 0
