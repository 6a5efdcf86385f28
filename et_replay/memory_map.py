"""A memory history and an allocator in; its blocks and segments over time, as columns, out.

Time is counted in events: a block lives in [start, end), from the event that allocates it to that
which frees it. What is there before the first event starts at -1; what is never freed ends at the
number of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from et_replay.errors import OutOfMemoryError
from et_replay.events import (
    DEFAULT_POOL,
    GROWTHS,
    RELEASES,
    Action,
    AllocationEvents,
    Int64Array,
    MemoryHistory,
    SegmentState,
    Timeline,
    TraceEntry,
)
from et_replay.held_ranges import HeldRanges
from et_replay.planning import Plan
from et_replay.serving import run_before, simulator_for

_FREES = (Action.FREE, Action.FREE_REQUESTED)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks handed out, one row each; sizes are those that the allocator counts."""

    storage: Int64Array
    start: Int64Array
    end: Int64Array
    address: Int64Array
    size: Int64Array
    requested: Int64Array

    def __len__(self) -> int:
        return len(self.storage)


@dataclass(frozen=True, eq=False)
class Segments:
    """Memory held from the device, one row each; of expandable segments, each part mapped at once.

    `pool` numbers the private pools from 1 on; 0 is the default one.
    """

    start: Int64Array
    end: Int64Array
    address: Int64Array
    size: Int64Array
    stream: Int64Array
    pool: Int64Array

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class MemoryMap:
    """What an allocator did with a history.

    The sizes of the blocks alive at a row add up to `timeline.allocated` there, and those of the
    segments to `timeline.reserved`. `entries` are the allocator's own history, `entry_rows` the
    event that each belongs to, and `state` is what is held in the end.
    """

    history: MemoryHistory
    allocator: str
    torch_version: str
    capacity: int
    fraction: float | None
    timeline: Timeline
    blocks: Blocks
    segments: Segments
    failures: Sequence[OutOfMemoryError]
    state: Sequence[SegmentState]
    entries: Sequence[TraceEntry]
    entry_rows: Int64Array

    @property
    def peak_row(self) -> int:
        """The first event after which most is allocated; -1 where that is before all of them."""
        before = self.blocks.size[self.blocks.start < 0].sum()
        return int(np.argmax(np.append(before, self.timeline.allocated))) - 1

    @property
    def peak_allocated(self) -> int:
        """Bytes, after any event."""
        before = int(self.blocks.size[self.blocks.start < 0].sum())
        return int(self.timeline.allocated.max(initial=before))

    @property
    def peak_reserved(self) -> int:
        """Bytes, after any event."""
        before = int(self.segments.size[self.segments.start < 0].sum())
        return int(self.timeline.reserved.max(initial=before))


def map_memory(
    history: MemoryHistory,
    allocator: str,
    capacity: int,
    *,
    torch_version: str,
    plan: Plan | None = None,
    fraction: float | None = None,
) -> MemoryMap:
    """Run all of `history`, requests that do not fit left out, and keep what was where.

    `fraction` is what PyTorch may hold of the `capacity` in bytes. Raises UsageError as
    `simulator_for` does, OutOfMemoryError where what lives before the first event does not fit, and
    UndefinedBehaviorError.
    """
    simulator = simulator_for(
        history,
        allocator,
        capacity,
        torch_version=torch_version,
        plan=plan,
        fraction=fraction,
        record_trace=True,
    )
    run_before(simulator, history, allocator)
    before, entries_before = simulator.segments(), len(simulator.trace())
    timeline = simulator.timeline_of(history.events)
    entries = simulator.trace()[entries_before:]
    numbers = np.arange(entries_before, entries_before + len(entries))
    rows = np.searchsorted(timeline.entries, numbers, side="right")
    return MemoryMap(
        history=history,
        allocator=allocator,
        torch_version=torch_version,
        capacity=capacity,
        fraction=fraction,
        timeline=timeline,
        blocks=_blocks(history.events, timeline, before),
        segments=_segments(before, entries, rows.tolist(), len(history.events)),
        failures=sorted(
            (*simulator.failures, *simulator.reproduced), key=lambda failure: failure.event or 0
        ),
        state=simulator.segments(),
        entries=entries,
        entry_rows=rows,
    )


def _blocks(
    events: AllocationEvents,
    timeline: Timeline,
    before: Iterable[SegmentState],
) -> Blocks:
    rows = [
        (block.storage, -1, block.address, block.size, block.requested)
        for segment in before
        for block in segment.blocks
        if block.storage >= 0 and not block.active_only
    ]
    held = sum(size for _, _, _, size, _ in rows)
    grown = np.diff(timeline.allocated, prepend=held)
    made = np.flatnonzero((events.action == Action.ALLOC) & (grown > 0))
    first = np.array(rows, dtype=np.int64).reshape(-1, 5)
    columns = events.storage[made], made, timeline.addresses[made], grown[made], events.size[made]
    later = np.stack(columns, axis=1)
    storage, start, address, size, requested = np.concatenate([first, later]).T
    return Blocks(storage, start, _ends(events, storage, start), address, size, requested)


def _ends(events: AllocationEvents, storage: Int64Array, start: Int64Array) -> Int64Array:
    """Find the free of each block: the next of its storage."""
    frees = np.flatnonzero(np.isin(events.action, _FREES))
    # Sorted by storage, then by row: the first free behind a block's own start ends it.
    order = np.lexsort((frees, events.storage[frees]))
    rows = frees[order]
    span = len(events) + 2
    keys = events.storage[rows] * span + rows + 1
    at = np.searchsorted(keys, storage * span + start + 1, side="right")
    ends: Int64Array = np.full(len(storage), len(events), dtype=np.int64)
    found = at < len(rows)
    found[found] = events.storage[rows[at[found]]] == storage[found]
    ends[found] = rows[at[found]]
    return ends


def _segments(
    before: Iterable[SegmentState], entries: Iterable[TraceEntry], rows: Iterable[int], end: int
) -> Segments:
    held = _Held(end)
    for segment in before:
        held.grow(-1, segment.address, segment.size, segment.stream, segment.pool)
    for row, entry in zip(rows, entries, strict=True):
        if entry.action in GROWTHS:
            held.grow(row, entry.address, entry.size, entry.stream, entry.pool or DEFAULT_POOL)
        elif entry.action in RELEASES:
            held.release(row, entry.address, entry.size)
    return held.segments()


class _Held:
    """Segments, from when they came; what is given back may be a part of one, or more."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._open: HeldRanges[tuple[int, int, int]] = HeldRanges()
        self._closed: list[tuple[int, int, int, int, int, int]] = []
        self._pools: dict[tuple[int, int], int] = {DEFAULT_POOL: 0}

    def grow(self, row: int, address: int, size: int, stream: int, pool: tuple[int, int]) -> None:
        number = self._pools.setdefault(pool, len(self._pools))
        self._open.add(address, size, (row, stream, number))

    def release(self, row: int, address: int, size: int) -> None:
        self._close(row, self._open.take(address, size))

    def segments(self) -> Segments:
        self._close(self._end, self._open.take_all())
        columns = np.array(self._closed, dtype=np.int64).reshape(-1, 6)
        return Segments(*columns[np.argsort(columns[:, 0], kind="stable")].T)

    def _close(self, row: int, parts: Iterable[tuple[int, int, tuple[int, int, int]]]) -> None:
        for address, size, (since, stream, pool) in parts:
            self._closed.append((since, row, address, size, stream, pool))
