"""An explanation in, why the request did not fit as sentences, the weightiest reason first, out."""

from __future__ import annotations

from collections.abc import Iterator

from et_replay.events import DEFAULT_POOL
from et_replay.explain.explanation import Explanation
from et_replay.simulation import PLANNED, allocator_name
from et_replay.units import counted, format_bytes

_NAMED = 3


def causes(explanation: Explanation) -> list[str]:
    """Say why the request failed; nothing for a peak."""
    failure = explanation.failure
    if failure is None:
        return []
    needed = explanation.reserved.requested + failure.requested
    if _is_arena(explanation):
        return [
            f"The plan's arena of {format_bytes(failure.requested)} is taken from the device as a"
            " whole, and does not fit it."
        ]
    if needed > failure.limit:
        excess = format_bytes(needed - failure.limit)
        return [
            f"What is live and the request ask for {excess} more than there is: no allocator"
            " can serve that, only fewer or smaller live storages."
        ]
    return [_no_range(explanation), *(text for _, text in _stranded(explanation))]


def _is_arena(explanation: Explanation) -> bool:
    """Tell whether it is not a request that failed, but the arena for all of them."""
    planned = allocator_name(explanation.allocator) == PLANNED
    return planned and explanation.statistics.reserved_bytes == 0


def _no_range(explanation: Explanation) -> str:
    """Say that the bytes would suffice, and what is missing is a range in one piece."""
    reserved, failure = explanation.reserved, explanation.failure
    assert failure is not None
    unreserved = failure.limit - failure.reserved
    text = (
        f"The bytes would suffice: {format_bytes(reserved.free)} are reserved but free, and"
        f" {format_bytes(unreserved)} not reserved. But none of them is one range that the request"
        f" may have: the largest hole in its reach is {format_bytes(reserved.largest_hole)}"
    )
    if failure.segment > failure.requested:
        text += f", and the device would have to give a segment of {format_bytes(failure.segment)}"
    return f"{text}."


def _stranded(explanation: Explanation) -> list[tuple[int, str]]:
    reserved = explanation.reserved
    others = "above" if explanation.request.small else "up to"
    found = [
        *_pinned(explanation),
        *_kept_by_pool(explanation),
        (
            reserved.pools,
            "are free in other pools (private ones are those of CUDA graphs and MemPool): a block"
            " serves only its own, and a private pool keeps its segments until it is gone.",
        ),
        (
            reserved.streams,
            "were freed on other streams: a block serves only the stream it was allocated on.",
        ),
        (reserved.awaiting, "were freed, but wait for work of other streams (record_stream)."),
        (
            reserved.sizes,
            f"are free in segments for requests {others} 1 MiB, which serve no others.",
        ),
        (reserved.unsplit, "are rests of live blocks that were not worth splitting."),
    ]
    return [
        (size, f"{format_bytes(size)} {text}")
        for size, text in sorted(found, key=lambda item: -item[0])
        if size > 0
    ]


def _pinned(explanation: Explanation) -> Iterator[tuple[int, str]]:
    """Say which live blocks keep segments, and so the holes beside them, from the device."""
    pinned = explanation.pinned
    if not pinned:
        return
    free = sum(segment.free for segment in pinned)
    live = sum(segment.live for segment in pinned)
    blocks = sum(segment.live_blocks for segment in pinned)
    worst = "; ".join(
        f"{format_bytes(segment.free)} free of {format_bytes(segment.size)}"
        for segment in pinned[:_NAMED]
        if segment.free * 10 > free
    )
    yield (
        free,
        f"are holes in {counted(len(pinned), 'segment')} pinned by {counted(blocks, 'live block')}"
        f" of {format_bytes(live)}, which keep them from going back to the device"
        f"{f' ({worst})' if worst else ''}.",
    )


def _kept_by_pool(explanation: Explanation) -> Iterator[tuple[int, str]]:
    """Say which free segments a private pool keeps, although nothing lives in them."""
    reserved = explanation.reserved
    if explanation.request.pool != DEFAULT_POOL and reserved.idle:
        yield (
            reserved.idle,
            "are free segments of the request's own private pool (CUDA graphs, MemPool), too small"
            " for it: the pool keeps them from going back to the device until it is gone.",
        )
