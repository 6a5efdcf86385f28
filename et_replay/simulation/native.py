"""What an allocator in C++ takes and tells, from and to what the rest of the package knows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from et_replay import _core
from et_replay.errors import OutOfMemoryError, UndefinedBehaviorError
from et_replay.events import (
    AllocationEvents,
    BlockState,
    Int64Array,
    PlanColumns,
    RunPlan,
    SegmentState,
)
from et_replay.units import format_bytes

CORE_ERRORS = (_core.OutOfMemoryError, _core.UndefinedBehaviorError)
ERRORS_OF_EVENTS = (*CORE_ERRORS, ValueError)  # events, or their pools, that follow no order


def native_events(events: AllocationEvents) -> _core.Events:
    return _core.Events(events.action, events.storage, events.size, events.stream)


def native_plan(plan: PlanColumns) -> _core.Plan:
    """Return the plan as an allocator takes it."""
    columns = (plan.storage, plan.offset, plan.size, plan.start, plan.end, plan.stream)
    return _core.Plan(plan.arena, plan.period, *map(np.ascontiguousarray, columns))


class _Requests(TypedDict):
    storage: Int64Array
    size: Int64Array
    stream: Int64Array
    varies: npt.NDArray[np.bool_]
    begins: list[int]
    marked: bool


def native_requests(plan: RunPlan) -> _Requests:
    """Return the list of requests as an allocator takes it."""
    storage, size, stream = map(np.ascontiguousarray, (plan.storage, plan.size, plan.stream))
    varies = np.ascontiguousarray(plan.varies, dtype=np.bool_)
    begins = [int(row) for row in plan.begins]
    return _Requests(
        storage=storage,
        size=size,
        stream=stream,
        varies=varies,
        begins=begins,
        marked=bool(plan.marked),
    )


def restore_all(native: _core.Simulation, segments: Sequence[SegmentState]) -> None:
    """Start from `segments` as they are; raises ValueError for such as cannot be."""
    for before, segment in pairwise(sorted(segments, key=lambda segment: segment.address)):
        if before.address + before.size > segment.address:
            raise ValueError(
                f"The segments at {before.address:#x} and {segment.address:#x} overlap."
            )
    for segment in segments:
        _restore(native, segment)


def _restore(native: _core.Simulation, segment: SegmentState) -> None:
    address = segment.address
    for block in segment.blocks:
        if block.address != address:
            raise ValueError(f"The segment at {segment.address:#x} has a gap at {address:#x}.")
        address += block.size
    native.restore(
        segment.address,
        segment.stream,
        segment.small,
        segment.expandable,
        segment.pool,
        [(b.size, b.requested, b.storage, b.active_only) for b in segment.blocks],
    )


def segment_state(segment: _core.Segment) -> SegmentState:
    """Name the parts of what a native allocator tells of a segment."""
    address, stream, small, expandable, pool, blocks = segment
    states = []
    end = address
    for size, requested, storage, active_only in blocks:
        states.append(BlockState(end, size, requested, storage, active_only))
        end += size
    return SegmentState(address, end - address, stream, small, expandable, pool, tuple(states))


def explained(
    error: _core.OutOfMemoryError | _core.UndefinedBehaviorError | ValueError,
) -> OutOfMemoryError | UndefinedBehaviorError:
    """Turn the native error into the user's, with a sentence."""
    if isinstance(error, _core.OutOfMemoryError):
        return out_of_memory_of(error.failure)
    if isinstance(error, ValueError):
        return UndefinedBehaviorError(str(error))
    return UndefinedBehaviorError(str(error), event=None if error.event < 0 else error.event)


def out_of_memory_of(failure: _core.Failure) -> OutOfMemoryError:
    """Put a native failure into the user's words."""
    exact = failure.segment == failure.requested
    needs = "" if exact else f" (a segment of {format_bytes(failure.segment)})"
    limited = failure.limit < failure.capacity
    limit = f" limited to {format_bytes(failure.limit)}," if limited else ","
    message = (
        f"Out of memory: a request of {format_bytes(failure.requested)}{needs} does not fit the"
        f" device of {format_bytes(failure.capacity)}{limit} of which"
        f" {format_bytes(failure.allocated)} are allocated and"
        f" {format_bytes(failure.reserved - failure.allocated)} are reserved but unallocated."
    )
    return OutOfMemoryError(
        message,
        requested=failure.requested,
        capacity=failure.capacity,
        allocated=failure.allocated,
        reserved=failure.reserved,
        largest_free=failure.largest_free,
        segment=failure.segment,
        limit=min(failure.limit, failure.capacity),
        event=None if failure.event < 0 else failure.event,
    )
