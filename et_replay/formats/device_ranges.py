"""What the device had given at a moment of a history: how much, where, and to which pool."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from et_replay.events import DEFAULT_POOL, GROWTHS, RELEASES, SegmentState, TraceEntry
from et_replay.held_ranges import HeldRanges


def find_device_memory(
    start: Sequence[SegmentState], entries: Sequence[TraceEntry], fraction: float = 1.0
) -> int | None:
    """Return the least that the device must have had, if out-of-memory events prove it.

    A request that failed although the device had that much free met a limit of the process, of
    which is known only that all memory ever reserved is within it. `fraction` is how much of the
    device the settings gave to the allocator.
    """
    reserved = peak = sum(segment.size for segment in start)
    proven, failed = [], False
    for action, free, size, *_ in entries:
        if action in GROWTHS:
            reserved += size
            peak = max(peak, reserved)
        elif action in RELEASES:
            reserved -= size
        elif action == "oom":
            failed = True
            if size > free:
                proven.append(reserved + free)
    if not failed:
        return None
    least = math.ceil(peak / fraction)
    while int(fraction * least) < peak:  # as the allocator rounds
        least += 1
    return max(least, min(proven, default=0))


def is_limited(entries: Sequence[TraceEntry]) -> bool:
    """Tell whether a request failed although the device had as much: the process had a limit."""
    return any(entry.action == "oom" and entry.size <= entry.address for entry in entries)


class PoolFinder:
    """The private pool of each allocation: its entry says so, or the segment that it lies in."""

    def __init__(self, segments: Sequence[SegmentState]) -> None:
        private = {s.address: s for s in segments if s.pool != DEFAULT_POOL}
        self._segments = [private[address] for address in sorted(private)]
        self._starts = sorted(private)

    def find(self, entry: TraceEntry) -> tuple[int, int]:
        """Return the pool's id, which is (0, 0) outside of private pools."""
        return self.find_at(entry.address) if entry.pool is None else entry.pool

    def find_at(self, address: int) -> tuple[int, int]:
        """Return the pool of the segment at an address."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return DEFAULT_POOL
        segment = self._segments[index]
        return segment.pool if address < segment.address + segment.size else DEFAULT_POOL


class ReservedRanges:
    """The ranges that the device gave, by where they begin; `total` is all of them, in bytes."""

    def __init__(self, start: Iterable[SegmentState]) -> None:
        self._ranges: HeldRanges[None] = HeldRanges()
        self.total = 0
        for segment in start:
            self.add(segment.address, segment.size)

    def add(self, address: int, size: int) -> None:
        """Add what the device gave."""
        self._ranges.add(address, size, None)
        self.total += size

    def give_back(self, address: int, size: int) -> None:
        """Take off what the device got back, which may be a part of a range, or of several."""
        self.total -= size
        self._ranges.take(address, size)

    def idle(self, live: Iterable[int]) -> list[int]:
        """Return where the ranges begin in which none of the live blocks begins."""
        starts = sorted(self._ranges)
        used = {bisect_right(starts, address) - 1 for address in live}
        return [start for index, start in enumerate(starts) if index not in used]
