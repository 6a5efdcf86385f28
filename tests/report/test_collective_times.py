"""Counts, times, bandwidths and waiting of collectives, each worked out by hand."""

from __future__ import annotations

from functools import partial

import pytest

from et_replay.replay.result import CollectiveTimes
from et_replay.report.collective_times import bus_factor, collective_rows

ALL = (0, 1, 2, 3)
MS = 1_000_000


def entry(
    kind: str,
    size: int,
    times_ns: list[int],
    begins_ns: list[int],
    *,
    group: tuple[int, ...] = ALL,
    iterations: int = 1,
    at_once: bool = False,
) -> CollectiveTimes:
    times, begins = tuple(times_ns), tuple(begins_ns)
    return CollectiveTimes(kind, group, "float", size, times, begins, iterations, at_once)


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        ("all_reduce", 8, 1.75),
        ("all_reduce_coalesced", 2, 1.0),
        ("all_gather", 4, 0.75),
        ("all_gather_into_tensor", 8, 0.875),
        ("reduce_scatter", 2, 0.5),
        ("reduce_scatter_tensor_coalesced", 4, 0.75),
        ("all_to_all_single", 8, 0.875),
        ("gather", 4, 0.75),
        ("scatter", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("send", 8, 1.0),
        ("recv", 8, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_the_factor_of_the_bus_is_that_of_nccls_tests(kind: str, ranks: int, factor: float) -> None:
    assert bus_factor(kind, ranks) == factor


def test_the_rank_that_comes_last_waits_for_none_and_the_others_for_it() -> None:
    times = {
        0: [entry("all_reduce", 4_000_000, [5 * MS, 2 * MS], [0, 20 * MS])],
        1: [entry("all_reduce", 4_000_000, [4 * MS, 2 * MS], [1 * MS, 20 * MS])],
        2: [entry("all_reduce", 4_000_000, [2 * MS, 3 * MS], [3 * MS, 19 * MS])],
        3: [entry("all_reduce", 4_000_000, [5 * MS, 2 * MS], [0, 20 * MS])],
    }
    (row,) = collective_rows(times, {rank: [20 * MS] for rank in ALL})
    assert (row.calls, row.ranks) == (2, ALL)
    assert row.times == [2 * MS, 2 * MS]
    # 3 ms, 2 ms and 3 ms for rank 2 in the first call, 1 ms of rank 2 for rank 0 in the second
    assert row.waits == {0: 3 * MS, 1: 2 * MS, 2: 1 * MS, 3: 3 * MS}
    assert row.waited_for == {2: 8 * MS, 0: 1 * MS}
    assert row.waiting == 9 * MS
    assert row.slowest == 2
    # 7, 6, 5 and 7 of 20 ms
    assert row.share == pytest.approx(0.3125)
    # 4 MB in 2 ms, by 2 * 3 / 4
    assert row.algorithm_bandwidth == pytest.approx(2e9)
    assert row.bus_bandwidth == pytest.approx(3e9)


def test_who_came_last_is_told_by_durations_where_all_leave_at_once() -> None:
    """Rank 1's clock is 5 ms behind that of rank 0, and both left at the same time."""
    times = {
        0: [entry("all_gather", 4, [2 * MS], [9 * MS], group=(0, 1))],
        1: [entry("all_gather", 4, [3 * MS], [3 * MS], group=(0, 1))],
    }
    (row,) = collective_rows(times, {})
    assert row.times == [2 * MS]
    assert row.waits == {0: 0, 1: 1 * MS}
    assert row.waited_for == {0: 1 * MS}


def test_figures_are_those_of_an_iteration() -> None:
    """Begins count from that of the iteration."""
    times = {
        0: [entry("barrier", 0, [2, 4, 6], [10, 8, 30], group=(0, 1), iterations=3)],
        1: [entry("barrier", 0, [1, 3, 3], [11, 9, 33], group=(0, 1), iterations=3)],
    }
    (row,) = collective_rows(times, {0: [100, 100, 100], 1: [100, 100, 100]})
    assert row.calls == 1
    assert row.times == [1, 3, 3]
    assert row.median == 3
    assert row.waits == {0: 2, 1: 0}  # 1 + 1 + 3 in three
    assert row.share == pytest.approx((12 / 300 + 7 / 300) / 2)
    assert row.algorithm_bandwidth is None
    assert row.bus_bandwidth is None


def test_a_rank_waits_no_longer_than_its_call_takes() -> None:
    """A root of a broadcast is done before the last rank comes."""
    times = {
        0: [entry("broadcast", 1000, [10], [0], group=(0, 1))],
        1: [entry("broadcast", 1000, [40], [500], group=(0, 1))],
    }
    (row,) = collective_rows(times, {})
    assert row.waits == {0: 10, 1: 0}
    assert row.times == [40]
    assert row.share is None
    assert row.bus_bandwidth == pytest.approx(1000 / 40e-9)


def test_clocks_are_set_by_calls_that_end_for_all_at_once() -> None:
    """Rank 1's is 300 ns ahead in the first iteration and 20 ns behind in the second."""
    pair = (0, 1)
    times = {
        0: [
            entry("broadcast", 1000, [50, 30], [0, 40], group=pair, iterations=2),
            entry("all_reduce", 4000, [500, 700], [1000, 900], group=pair, iterations=2),
        ],
        1: [
            entry("broadcast", 1000, [45, 60], [310, 0], group=pair, iterations=2),
            entry("all_reduce", 4000, [400, 700], [1400, 880], group=pair, iterations=2),
        ],
    }
    row = collective_rows(times, {})[1]
    assert row.kind == "broadcast"
    # rank 1 came 10 ns after rank 0, then 20 ns before it
    assert row.times == [45, 40]
    assert row.waits == {0: 5, 1: 10}


def test_a_wait_shorter_than_the_clocks_are_exact_is_not_told() -> None:
    """Ends of all_reduces differ by 100, 104 and 97 ns: clocks are right to 4 ns."""
    pair = (0, 1)
    times = {
        0: [
            entry("all_reduce", 4000, [50, 50, 50], [0, 1000, 2000], group=pair),
            entry("broadcast", 1000, [20, 20], [3000, 4000], group=pair),
        ],
        1: [
            entry("all_reduce", 4000, [50, 54, 47], [100, 1100, 2100], group=pair),
            entry("broadcast", 1000, [22, 25], [3096, 4095], group=pair),
        ],
    }
    row = collective_rows(times, {})[1]
    assert row.kind == "broadcast"
    # rank 1 came 4 ns before rank 0, which is too short to be told, and then 5 ns, which is not
    assert row.times == [20, 20]
    assert row.waits == {0: 0, 1: 5}


@pytest.mark.parametrize(("at_once", "time", "wait"), [(True, 23, 7), (False, 21, 9)])
def test_clocks_that_began_at_once_are_set_only_if_ends_of_calls_tell_them_apart(
    at_once: bool, time: int, wait: int
) -> None:
    """Ends of all_reduces differ by 2, -3 and 8 ns, and rank 1 came 7 ns before rank 0."""
    told = partial(entry, group=(0, 1), at_once=at_once)
    times = {
        0: [
            told("all_reduce", 4000, [50, 50, 50], [0, 1000, 2000]),
            told("broadcast", 1000, [20], [3000]),
        ],
        1: [
            told("all_reduce", 4000, [52, 47, 58], [0, 1000, 2000]),
            told("broadcast", 1000, [30], [2993]),
        ],
    }
    row = collective_rows(times, {})[1]
    assert row.kind == "broadcast"
    assert row.times == [time]
    assert row.waits == {0: 0, 1: wait}


def test_sends_of_different_ranks_are_not_one_call() -> None:
    times = {
        0: [entry("send", 64, [10], [0], group=(0, 1, 2))],
        1: [entry("send", 64, [30], [700], group=(0, 1, 2))],
    }
    (row,) = collective_rows(times, {})
    assert sorted(row.times) == [10, 30]
    assert (row.waits, row.waiting) == ({}, None)
    assert row.slowest is None
    assert row.bus_bandwidth == pytest.approx(64 / 20e-9)


def test_calls_that_are_not_the_same_number_in_all_ranks_are_not_matched() -> None:
    times = {
        0: [entry("gather", 64, [10, 12], [0, 50], group=(0, 1))],
        1: [entry("gather", 64, [30], [700], group=(0, 1))],
    }
    (row,) = collective_rows(times, {})
    assert (row.calls, sorted(row.times), row.waits) == (2, [10, 12, 30], {})
    assert row.waiting is None


def test_a_rank_alone_in_its_group_waits_for_none() -> None:
    (row,) = collective_rows({3: [entry("all_reduce", 64, [10], [0], group=(3,))]}, {3: [100]})
    assert (row.times, row.waiting, row.slowest) == ([10], 0, None)


def test_one_call_may_have_another_size_in_each_rank() -> None:
    """Of an uneven all_to_all, or of a gather, whose root has all; the order tells the calls."""
    times = {
        0: [
            entry("all_to_all_single", 12, [9], [0], group=(0, 1)),
            entry("all_to_all_single", 30, [8], [50], group=(0, 1)),
        ],
        1: [entry("all_to_all_single", 20, [4, 6], [5, 52], group=(0, 1))],
    }
    first, second = collective_rows(times, {0: [100], 1: [100]})
    assert (first.bytes, first.times, first.waits, first.calls) == (30, [6], {0: 2, 1: 0}, 1)
    assert (second.bytes, second.times, second.waits, second.calls) == (20, [4], {0: 5, 1: 0}, 1)
    assert second.share == pytest.approx((9 + 4) / 200)


def test_kinds_groups_types_and_sizes_are_apart_and_the_longest_comes_first() -> None:
    times = {
        0: [
            entry("all_gather", 10, [5], [0], group=(0, 1)),
            entry("all_gather", 20, [7], [0], group=(0, 1)),
            entry("all_gather", 20, [9], [0], group=(0, 2)),
            entry("all_reduce", 20, [1, 1, 1], [0, 1, 2], group=(0, 1)),
            entry("all_reduce", 30, [], [], group=(0, 1)),
        ]
    }
    rows = collective_rows(times, {})
    assert [(row.kind, row.bytes, row.group) for row in rows] == [
        ("all_gather", 20, (0, 2)),
        ("all_gather", 20, (0, 1)),
        ("all_gather", 10, (0, 1)),
        ("all_reduce", 20, (0, 1)),
    ]
