"""The default rules of PyTorch's caching allocator, slow and obvious: the native one's oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MIB = 2**20


class Block(NamedTuple):
    offset: int
    size: int
    storage: int | None  # None: the block is free


@dataclass
class Segment:
    """`small` and `stream` say whom it serves; `blocks` fill it without a gap."""

    address: int
    size: int
    small: bool
    stream: int
    blocks: list[Block]


class CachingOracle:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.segments: list[Segment] = []
        self.next_address = 0x7F0000000000

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def live(self) -> dict[int, tuple[int, int]]:
        """Return address and size of every storage."""
        return {
            block.storage: (segment.address + block.offset, block.size)
            for segment in self.segments
            for block in segment.blocks
            if block.storage is not None
        }

    def allocate(self, storage: int, size: int, stream: int) -> bool:
        """Return whether the request fitted."""
        rounded = max(512, -(-size // 512) * 512)
        small = rounded <= MIB
        fit = self._best_fit(rounded, small, stream)
        if fit is None and not self._grow(rounded, small, stream):
            self.empty_cache()
            if not self._grow(rounded, small, stream):
                return False
        segment, index = fit or (self.segments[-1], 0)
        offset, block_size, _ = segment.blocks[index]
        rest = block_size - rounded
        if rest >= 512 if small else rest > MIB:
            front, back = Block(offset, rounded, storage), Block(offset + rounded, rest, None)
            segment.blocks[index : index + 1] = [front, back]
        else:
            segment.blocks[index] = Block(offset, block_size, storage)
        return True

    def free(self, storage: int) -> None:
        for segment in self.segments:
            merged: list[Block] = []
            for offset, size, owner in segment.blocks:
                owner = None if owner == storage else owner
                if merged and owner is None and merged[-1].storage is None:
                    before = merged.pop()
                    merged.append(Block(before.offset, before.size + size, None))
                else:
                    merged.append(Block(offset, size, owner))
            segment.blocks = merged

    def empty_cache(self) -> None:
        self.segments = [s for s in self.segments if s.blocks != [Block(0, s.size, None)]]

    def _best_fit(self, rounded: int, small: bool, stream: int) -> tuple[Segment, int] | None:
        fits = [
            (block.size, number, index)
            for number, segment in enumerate(self.segments)
            if segment.small == small and segment.stream == stream
            for index, block in enumerate(segment.blocks)
            if block.storage is None and block.size >= rounded
        ]
        if not fits:
            return None
        _, number, index = min(fits)
        return self.segments[number], index

    def _grow(self, rounded: int, small: bool, stream: int) -> bool:
        packed = 2 * MIB if small else 20 * MIB
        size = packed if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
        if self.reserved + size > self.capacity:
            return False
        blocks = [Block(0, size, None)]
        self.segments.append(Segment(self.next_address, size, small, stream, blocks))
        self.next_address += size
        return True
