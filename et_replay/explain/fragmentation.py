"""Segments and a request in; where the reserved bytes are, and why it could not have them, out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from et_replay.events import DEFAULT_POOL, BlockState, SegmentState

_GRAIN = 512
_LARGEST_SMALL = 2**20
"""c10/cuda/CUDACachingAllocator: sizes are rounded to 512 B, and up to 1 MiB they are small."""
LARGE = _LARGEST_SMALL + 1
"""The least of the large requests: what free memory is looked at for where nothing is asked."""


@dataclass(frozen=True)
class Request:
    """What is asked for, and where the allocator may look for it."""

    size: int
    stream: int = 0
    pool: tuple[int, int] = DEFAULT_POOL

    @property
    def small(self) -> bool:
        """Small requests have segments of their own."""
        return self.size <= _LARGEST_SMALL


@dataclass(frozen=True)
class ReservedBytes:
    """All reserved bytes, each counted once; the free ones by what keeps a request from them.

    `requested` is what the owners of live blocks asked for; `rounding` what makes that a multiple
    of 512; `unsplit` the rests of blocks that were not worth splitting, and the rounding of
    `roundup_power2_divisions`. `awaiting` are blocks that their owners freed while another stream
    still uses them. Of the free bytes, `pools` lie in pools that the request may not use; `streams`
    belong to other streams; `sizes` to segments of small
    requests where this one is large, or the other way round. Where it may look, `holes` lie beside
    live blocks and `idle` in segments without any.
    """

    requested: int = 0
    rounding: int = 0
    unsplit: int = 0
    awaiting: int = 0
    pools: int = 0
    streams: int = 0
    sizes: int = 0
    holes: int = 0
    idle: int = 0
    free_blocks: int = 0
    largest_free: int = 0
    """Of any pool and stream."""
    largest_hole: int = 0
    """Where the request may look."""

    @property
    def free(self) -> int:
        """Reserved, but unallocated and not waited for."""
        return self.pools + self.streams + self.sizes + self.holes + self.idle


@dataclass(frozen=True)
class PinnedSegment:
    """A segment that cannot go back to the device: `live` bytes keep `free` ones in it."""

    size: int
    free: int
    live: int
    live_blocks: int


def split_reserved(segments: Iterable[SegmentState], request: Request) -> ReservedBytes:
    """Say where all reserved bytes are, from the point of view of `request`."""
    totals = dict.fromkeys(ReservedBytes.__dataclass_fields__, 0)
    for segment in segments:
        idle = not any(block.storage >= 0 for block in segment.blocks)
        where = _reach(segment, request, idle)
        for block in segment.blocks:
            if block.storage >= 0:
                _add_live(totals, block)
                continue
            totals[where] += block.size
            totals["free_blocks"] += 1
            totals["largest_free"] = max(totals["largest_free"], block.size)
            if where in ("holes", "idle"):
                totals["largest_hole"] = max(totals["largest_hole"], block.size)
    return ReservedBytes(**totals)


def pinned_segments(segments: Iterable[SegmentState], request: Request) -> list[PinnedSegment]:
    """List the segments in reach of `request` that live blocks keep, most free bytes first."""
    pinned = [
        _pinned(segment)
        for segment in segments
        if any(block.storage >= 0 for block in segment.blocks)
        and any(block.storage < 0 for block in segment.blocks)
        and _reach(segment, request, idle=False) == "holes"
    ]
    return sorted(pinned, key=lambda segment: -segment.free)


def _add_live(totals: dict[str, int], block: BlockState) -> None:
    if block.active_only:
        totals["awaiting"] += block.size
        return
    rounded = min(block.size, -(-block.requested // _GRAIN) * _GRAIN)
    totals["requested"] += block.requested
    totals["rounding"] += rounded - block.requested
    totals["unsplit"] += block.size - rounded


def _reach(segment: SegmentState, request: Request, idle: bool) -> str:
    """Name the field that free bytes of `segment` count for."""
    if segment.pool != request.pool:
        return "pools"
    if segment.stream != request.stream:
        return "streams"
    if segment.small != request.small:
        return "sizes"
    return "idle" if idle else "holes"


def _pinned(segment: SegmentState) -> PinnedSegment:
    live: Sequence[BlockState] = [block for block in segment.blocks if block.storage >= 0]
    free = [block.size for block in segment.blocks if block.storage < 0]
    return PinnedSegment(
        size=segment.size,
        free=sum(free),
        live=sum(block.size for block in live),
        live_blocks=len(live),
    )
