"""A segment of an allocator in, its dictionary as in PyTorch's memory snapshots out."""

from __future__ import annotations

from collections.abc import Callable

from et_replay.events import BlockState, SegmentState

Frames = list[dict[str, object]]


def segment_fields(
    segment: SegmentState, frames_of: Callable[[int], Frames] = lambda _: [], device: int = 0
) -> dict[str, object]:
    """Describe a segment as `torch.cuda.memory_snapshot` does.

    `frames_of` tells the stack frames of a storage, the innermost first.
    """
    active = [block for block in segment.blocks if block.storage >= 0]
    return {
        "device": device,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": sum(block.size for block in active if not block.active_only),
        "active_size": sum(block.size for block in active),
        "requested_size": sum(block.requested for block in active),
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": segment.pool,
        "is_expandable": segment.expandable,
        "frames": [],
        "blocks": [_block(block, frames_of) for block in segment.blocks],
    }


def _block(block: BlockState, frames_of: Callable[[int], Frames]) -> dict[str, object]:
    active = "active_pending_free" if block.active_only else "active_allocated"
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": "inactive" if block.storage < 0 else active,
        "frames": frames_of(block.storage),
    }
