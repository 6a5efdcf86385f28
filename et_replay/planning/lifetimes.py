"""Allocation events in, when each storage lives and what kind it is out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from et_replay.events import (
    DEFAULT_POOL,
    Action,
    AllocationEvents,
    Int64Array,
    SegmentState,
    pool_number,
    routed_pools,
)

ALIGNMENT = 512
"""What PyTorch aligns every block to; sizes are rounded up to it."""


class StorageClass(enum.IntEnum):
    """How long a storage lives; the values are those of the `storage_class` column."""

    RESIDENT = 0
    """From before the first operation, or the first event, to the end."""
    LASTING = 1
    """Made along the way, and there at the end."""
    PASSING = 2
    """Freed along the way."""
    PRIVATE = 3
    """In a private pool: the graph that it belongs to may use its address at any time, so the plan
    leaves it to the caching allocator."""
    CROSSING = 4
    """Made in an iteration that repeats, and freed in a later one."""
    UNMATCHED = 5
    """Not part of what repeats, though made after the repetition began: the plan does not cover it.
    """
    VARYING = 6
    """Made in the iterations that repeat at the same place in the order, but not in the same size,
    or not in all of them."""


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """Storages that take memory, in the order in which they appear; columns of equal length.

    Row r of the events is tick r + 1: a storage made there and freed in row q lives in [r + 1,
    q + 1). What is there before the first event lives from tick 0, what is never freed to `ticks`.
    Freed is what may be used again: other streams' use has been waited for. Addresses are to be
    multiples of `alignment`.
    """

    storage: Int64Array
    size: Int64Array
    start: Int64Array
    end: Int64Array
    stream: Int64Array
    alignment: Int64Array
    storage_class: Int64Array
    ticks: int

    def __len__(self) -> int:
        return len(self.storage)


def lifetimes(events: AllocationEvents, segments: Sequence[SegmentState] = ()) -> Lifetimes:
    """Pair the allocations of `events`, and what is live in `segments` before, with their frees."""
    storage, size, stream, private = _before(segments)
    rows = np.flatnonzero((events.action == Action.ALLOC) & (events.size > 0))
    row = np.concatenate([np.full(len(storage), -1, np.int64), rows])
    storage = np.concatenate([storage, events.storage[rows]])
    ticks = len(events) + 1
    end = _ends(events, storage, row, ticks)
    first = int(events.steps[0]) if len(events.steps) else 0
    private = np.concatenate([private, routed_pools(events)[rows] != pool_number(DEFAULT_POOL)])
    kinds = np.select(
        [private != 0, end < ticks, row < first],
        [StorageClass.PRIVATE, StorageClass.PASSING, StorageClass.RESIDENT],
        StorageClass.LASTING,
    )
    return Lifetimes(
        storage=storage,
        size=np.concatenate([size, events.size[rows]]),
        start=row + 1,
        end=end,
        stream=np.concatenate([stream, events.stream[rows]]),
        alignment=np.full(len(storage), ALIGNMENT),
        storage_class=kinds.astype(np.int64),
        ticks=ticks,
    )


def _before(
    segments: Sequence[SegmentState],
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """List storage, size, stream, and whether in a private pool, of what the first event finds."""
    live = [
        (block.storage, block.requested, segment.stream, segment.pool != DEFAULT_POOL)
        for segment in segments
        for block in segment.blocks
        if block.storage >= 0
    ]
    storage, size, stream, private = (
        np.array([block[column] for block in live], dtype=np.int64) for column in range(4)
    )
    return storage, size, stream, private


def _ends(events: AllocationEvents, storage: Int64Array, row: Int64Array, ticks: int) -> Int64Array:
    """Find for each allocation the tick of the next free of its storage."""
    freed = np.flatnonzero(np.isin(events.action, (Action.FREE, Action.FREE_COMPLETED)))
    names = np.concatenate([storage, events.storage[freed]])
    places = np.concatenate([row, freed])
    order = np.lexsort((places, names))
    made, next_ = order[:-1], order[1:]
    paired = (made < len(storage)) & (next_ >= len(storage)) & (names[made] == names[next_])
    end = np.full(len(storage), ticks, dtype=np.int64)
    end[made[paired]] = places[next_[paired]] + 1
    return end
