"""What was reserved and in use when a recorded history began: its end goes in, the start comes out.

A ring buffer keeps only the last events, and the snapshot only the state after them. Walking back
from there, each event is undone. What is lost is how large blocks were that were freed since: an
event has the size asked for, and a block can be up to 1 MiB larger. What follows the block tells:

      | A: asked for 3 MiB  ?? | B, live        |    the rest is too small to be a block: it is A's
      | A: asked for 3 MiB  ??     free         |    where the next allocation in it began, A ended
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from et_replay.events import (
    DEFAULT_POOL,
    GROWTHS,
    RELEASES,
    BlockState,
    SegmentState,
    TraceEntry,
)
from et_replay.formats.allocator_settings import AllocatorSettings

_LARGEST_REST = 1 << 20  # of a large block; a larger one is split off
_SMALL_SEGMENT = 2 << 20  # and the page of expandable segments of small blocks
_LARGEST_SMALL = 1 << 20


@dataclass(frozen=True)
class StartState:
    """The segments at the start; storages number their live blocks by address, from 0.

    `guessed` counts the live blocks whose size nothing proves, `strays` the events and blocks
    that contradict the others and were left out.
    """

    segments: tuple[SegmentState, ...]
    guessed: int
    strays: int


@dataclass
class _Live:
    """A live block; a size of 0 is not known, `freed` is the position of the event that ends it."""

    requested: int
    size: int
    freed: int
    pending: bool
    stack: int = -1


def rebuild_start(
    end: Sequence[SegmentState], entries: Sequence[TraceEntry], settings: AllocatorSettings
) -> StartState:
    """Undo `entries`, which led to the segments `end`."""
    past = _Past(end, len(entries))
    for position in range(len(entries) - 1, -1, -1):
        past.undo(position, entries[position])
    first_uses: dict[int, int] = {}
    for position, entry in enumerate(entries):
        if entry.action == "alloc":
            first_uses.setdefault(entry.address, position)
    return _Builder(past, settings, first_uses).build()


class _Past:
    """The state before the events undone so far: segments by address, and live blocks."""

    def __init__(self, end: Sequence[SegmentState], count: int) -> None:
        self.segments = sorted(
            (replace(segment, blocks=()) for segment in end), key=lambda segment: segment.address
        )
        self._starts = [segment.address for segment in self.segments]
        self.strays = 0
        self.live: dict[int, _Live] = {}
        self.stale: dict[tuple[int, int], int] = {}
        for block in (block for segment in end for block in segment.blocks):
            if block.storage >= 0:
                self.live[block.address] = _Live(
                    block.requested, block.size, count, block.active_only, block.stack
                )
            elif not count:
                self.stale[block.address, block.size] = block.requested

    def undo(self, position: int, entry: TraceEntry) -> None:
        """Go back to before an event."""
        action, address, size, *_ = entry
        if action == "alloc":
            self.strays += self.live.pop(address, None) is None
        elif action == "free_completed":
            self.strays += address in self.live
            self.live[address] = _Live(size, 0, position, True)
        elif action == "free_requested":
            block = self.live.setdefault(address, _Live(size, 0, position, False))
            block.pending = False
        elif action in GROWTHS:
            self._take(address, size)
        elif action in RELEASES:
            self._put(entry)

    def _take(self, address: int, size: int) -> None:
        """Take a range out of the segment that holds it; of an expandable one, parts remain."""
        index = bisect_right(self._starts, address) - 1
        segment = self.segments[index] if index >= 0 else None
        if segment is None or address + size > segment.address + segment.size:
            self.strays += 1
            return
        after = address + size
        parts = (
            (segment.address, address - segment.address),
            (after, segment.address + segment.size - after),
        )
        self._replace(
            index,
            index + 1,
            [replace(segment, address=begin, size=rest) for begin, rest in parts if rest],
        )

    def _put(self, entry: TraceEntry) -> None:
        """Put a range back; one of an expandable segment grows together with its neighbours."""
        action, address, size, stream, pool, *_ = entry
        index = bisect_left(self._starts, address)
        before, after = self.segments[max(0, index - 1) : index], self.segments[index : index + 1]
        if any(_end(other) > address for other in before) or any(
            other.address < address + size for other in after
        ):
            self.strays += 1  # what is there already was not given back
            return
        expandable = action == "segment_unmap"
        small = size == _SMALL_SEGMENT or (expandable and size % (10 * _SMALL_SEGMENT) != 0)
        segment = SegmentState(address, size, stream, small, expandable, pool or DEFAULT_POOL, ())
        begin, end = index, index
        for other in (*before, *after):
            touches = other.address + other.size == address or address + size == other.address
            if expandable and other.expandable and touches and other.stream == stream:
                segment = replace(
                    other,
                    address=min(other.address, segment.address),
                    size=other.size + segment.size,
                )
                begin, end = (index - 1, end) if other.address < address else (begin, index + 1)
        self._replace(begin, end, [segment])

    def _replace(self, begin: int, end: int, segments: list[SegmentState]) -> None:
        self.segments[begin:end] = segments
        self._starts[begin:end] = [segment.address for segment in segments]


def _end(segment: SegmentState) -> int:
    return segment.address + segment.size


class _Builder:
    """Lays the live blocks out in their segments, each with the size that it must have had."""

    def __init__(
        self, past: _Past, settings: AllocatorSettings, first_uses: dict[int, int]
    ) -> None:
        self._past = past
        self._settings = settings
        self._first_uses = first_uses
        self._used = sorted(first_uses)
        self._live = sorted(past.live)
        self._storages = 0
        self._guessed = 0

    def build(self) -> StartState:
        """Return the segments with their blocks."""
        segments = tuple(
            replace(segment, blocks=tuple(self._blocks(segment))) for segment in self._past.segments
        )
        homeless = len(self._live) - self._storages
        return StartState(segments, self._guessed, self._past.strays + homeless)

    def _blocks(self, segment: SegmentState) -> Iterator[BlockState]:
        position, end = segment.address, segment.address + segment.size
        first, last = bisect_left(self._live, position), bisect_left(self._live, end)
        for index in range(first, last):
            address = self._live[index]
            following = self._live[index + 1] if index + 1 < last else end
            block = self._past.live[address]
            size = block.size or self._size(segment, address, following)
            if address < position or address + size > end:
                continue
            if address > position:
                yield self._inactive(position, address - position)
            yield BlockState(
                address, size, block.requested, self._storages, block.pending, block.stack
            )
            self._storages += 1
            position = address + size
        if position < end:
            yield self._inactive(position, end - position)

    def _inactive(self, address: int, size: int) -> BlockState:
        return BlockState(address, size, self._past.stale.get((address, size), 0), -1)

    def _size(self, segment: SegmentState, address: int, following: int) -> int:
        """Return the size of a block that was freed later and is followed by another there."""
        block = self._past.live[address]
        rounded = self._settings.rounded(block.requested)
        gap = following - address - rounded
        if gap <= 0 or segment.small or segment.expandable or self._settings.expandable:
            return rounded
        max_split = self._settings.max_split
        if gap <= _LARGEST_REST or (max_split is not None and rounded >= max_split):
            return rounded + gap
        used = self._earliest_use(address + rounded, block.freed)
        if used is None:
            self._guessed += 1
            return rounded
        return used - address

    def _earliest_use(self, end: int, before: int) -> int | None:
        """Return where the first allocation behind a block began while the block was live."""
        first = bisect_left(self._used, end)
        last = bisect_right(self._used, end + _LARGEST_REST)
        uses = ((self._first_uses[address], address) for address in self._used[first:last])
        position, address = min(uses, default=(before, 0))
        return address if position < before else None
