"""A simulated allocator in, a memory snapshot out, as PyTorch's own tools and viewers read it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

from et_replay.events import BlockState, SegmentState, TraceEntry
from et_replay.formats.allocator_settings import settings_as_fields

# newer pickles are beyond the viewer, which has an unpickler of its own
_PROTOCOL = 4
_DEFAULT_POOL = (0, 0)


def snapshot_pickle(
    segments: Iterable[SegmentState], entries: Iterable[TraceEntry], settings: str = ""
) -> bytes:
    """Return what `torch.cuda.memory._dump_snapshot` would have written of the same allocator.

    A position in `entries` stands for the time, as a simulation has none.
    """
    content = {
        "segments": [_segment(segment) for segment in segments],
        "device_traces": [[_entry(time, entry) for time, entry in enumerate(entries)]],
        "allocator_settings": settings_as_fields(settings),
        "external_annotations": [],
    }
    return pickle.dumps(content, _PROTOCOL)


def _segment(segment: SegmentState) -> dict[str, object]:
    active = [block for block in segment.blocks if block.storage >= 0]
    return {
        "device": 0,
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
        "blocks": [_block(block) for block in segment.blocks],
    }


def _block(block: BlockState) -> dict[str, object]:
    active = "active_pending_free" if block.active_only else "active_allocated"
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": "inactive" if block.storage < 0 else active,
        "frames": [],
    }


def _entry(time: int, entry: TraceEntry) -> dict[str, object]:
    return {
        "action": entry.action,
        "device_free" if entry.action == "oom" else "addr": entry.address,
        "size": entry.size,
        "stream": entry.stream,
        "time_us": time,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": entry.pool or _DEFAULT_POOL,
        "frames": [],
    }
