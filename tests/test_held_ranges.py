"""Ranges that are held from a device: what is taken off, and what stays."""

from __future__ import annotations

from et_replay.held_ranges import HeldRanges


def held(*ranges: tuple[int, int, str]) -> HeldRanges[str]:
    made: HeldRanges[str] = HeldRanges()
    for address, size, what in ranges:
        made.add(address, size, what)
    return made


def test_a_whole_range_is_taken_and_no_other() -> None:
    ranges = held((0, 10, "a"), (10, 10, "b"))
    assert ranges.take(10, 10) == [(10, 10, "b")]
    assert ranges.take_all() == [(0, 10, "a")]
    assert ranges.take_all() == []


def test_a_part_in_the_middle_leaves_what_is_on_both_sides() -> None:
    ranges = held((0, 10, "a"))
    assert ranges.take(4, 2) == [(4, 2, "a")]
    assert ranges.take_all() == [(0, 4, "a"), (6, 4, "a")]


def test_what_reaches_over_several_ranges_takes_of_each_its_part() -> None:
    ranges = held((0, 10, "a"), (10, 10, "b"), (30, 10, "c"))
    assert ranges.take(5, 30) == [(5, 5, "a"), (10, 10, "b"), (30, 5, "c")]
    assert ranges.take_all() == [(0, 5, "a"), (35, 5, "c")]


def test_where_nothing_is_held_nothing_is_taken() -> None:
    ranges = held((0, 10, "a"))
    assert ranges.take(10, 5) == []
    assert list(ranges) == [0]
