"""A caching allocator that is told every address: it checks that a history is possible at all.

It searches for no block, so it shares nothing with the simulator: an allocation must lie at the
front of a free block, be split as the rules say, and merge with its free neighbours in the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from et_replay.events import BlockState, SegmentState, TraceEntry
from et_replay.formats.allocator_settings import AllocatorSettings

MIB = 1 << 20
FREE, LIVE, PENDING = "free", "live", "pending"


class AddressWalk:
    """Segments as lists of [address, size, state], by their address."""

    def __init__(self, start: Iterable[SegmentState], settings: AllocatorSettings) -> None:
        self.settings = settings
        self.segments = {
            segment.address: [
                [block.address, block.size, _state(block)] for block in segment.blocks
            ]
            for segment in start
        }
        self.pools = {segment.address: (segment.stream, segment.small) for segment in start}

    def walk(self, entries: Iterable[TraceEntry]) -> None:
        for entry in entries:
            getattr(self, "_" + entry.action)(entry)

    def state(self) -> list[tuple[int, list[tuple[int, int, str]]]]:
        return [
            (start, [tuple(block) for block in blocks])
            for start, blocks in sorted(self.segments.items())
        ]

    def best_fit(self, entry: TraceEntry) -> int | None:
        """Return where torch up to 2.11 puts a request, if neither setting nor pool interferes."""
        rounded = self.settings.rounded(entry.size)
        pool = entry.stream, rounded <= MIB
        fits = [
            (size, address)
            for start, blocks in self.segments.items()
            for address, size, state in blocks
            if self.pools[start] == pool and state == FREE and size >= rounded
        ]
        return min(fits)[1] if fits else None

    def _alloc(self, entry: TraceEntry) -> None:
        blocks, index = self._find(entry.address)
        block = blocks[index]
        assert block[0] == entry.address and block[2] == FREE, f"{entry} is not at a free block"
        rounded = self.settings.rounded(entry.size)
        rest = block[1] - rounded
        assert rest >= 0, f"{entry} does not fit the {block[1]} bytes that are free there"
        small = rounded <= MIB
        max_split = self.settings.max_split
        if small or self.settings.expandable:
            splits = rest >= 512
        else:
            splits = (max_split is None or rounded < max_split) and rest > MIB
        block[2] = LIVE
        if splits:
            block[1] = rounded
            blocks.insert(index + 1, [entry.address + rounded, rest, FREE])

    def _free_requested(self, entry: TraceEntry) -> None:
        blocks, index = self._find(entry.address)
        assert blocks[index][0] == entry.address and blocks[index][2] == LIVE, entry
        blocks[index][2] = PENDING

    def _free_completed(self, entry: TraceEntry) -> None:
        blocks, index = self._find(entry.address)
        assert blocks[index][0] == entry.address and blocks[index][2] == PENDING, entry
        blocks[index][2] = FREE
        _merge(blocks)

    def _segment_alloc(self, entry: TraceEntry) -> None:
        assert entry.address not in self.segments
        self.segments[entry.address] = [[entry.address, entry.size, FREE]]
        self.pools[entry.address] = entry.stream, entry.size == 2 * MIB

    def _segment_free(self, entry: TraceEntry) -> None:
        blocks = self.segments.pop(entry.address)
        assert blocks == [[entry.address, entry.size, FREE]], f"{entry} is in use: {blocks}"

    def _segment_map(self, entry: TraceEntry) -> None:
        blocks = [[entry.address, entry.size, FREE]]
        before = [s for s, b in self.segments.items() if b[-1][0] + b[-1][1] == entry.address]
        after = self.segments.pop(entry.address + entry.size, [])
        start = before[0] if before else entry.address
        self.segments[start] = [*self.segments.get(start, []), *blocks, *after]
        _merge(self.segments[start])

    def _segment_unmap(self, entry: TraceEntry) -> None:
        blocks, index = self._find(entry.address)
        start = blocks[0][0]
        address, size, state = blocks[index]
        end = entry.address + entry.size
        assert state == FREE and end <= address + size
        before = [*blocks[:index], [address, entry.address - address, FREE]]
        after = [[end, address + size - end, FREE], *blocks[index + 1 :]]
        del self.segments[start]
        for part in ([b for b in before if b[1]], [b for b in after if b[1]]):
            if part:
                self.segments[part[0][0]] = part

    def _oom(self, entry: TraceEntry) -> None:
        pass

    def _find(self, address: int) -> tuple[list[list], int]:
        for blocks in self.segments.values():
            if blocks[0][0] <= address < blocks[-1][0] + blocks[-1][1]:
                index = max(i for i, block in enumerate(blocks) if block[0] <= address)
                return blocks, index
        raise AssertionError(f"nothing is reserved at {address:#x}")


def layout(segments: Iterable[SegmentState]) -> list[tuple[int, list[tuple[int, int, str]]]]:
    """Return segments in the form of `AddressWalk.state`."""
    return [
        (s.address, [(b.address, b.size, _state(b)) for b in s.blocks])
        for s in sorted(segments, key=lambda s: s.address)
    ]


def _state(block: BlockState) -> str:
    if block.storage < 0:
        return FREE
    return PENDING if block.active_only else LIVE


def _merge(blocks: list[list]) -> None:
    index = 1
    while index < len(blocks):
        before, block = blocks[index - 1], blocks[index]
        if before[2] == FREE and block[2] == FREE:
            before[1] += block[1]
            del blocks[index]
        else:
            index += 1
