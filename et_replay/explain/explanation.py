"""A history and an allocator in; what was live and reserved at a failure or at the peak, out."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from et_replay.allocator_figures import MemoryStatistics
from et_replay.errors import OutOfMemoryError
from et_replay.events import (
    AllocationEvents,
    MemoryHistory,
    SegmentState,
    Timeline,
    pool_id,
    routed_pools,
)
from et_replay.explain.fragmentation import (
    LARGE,
    PinnedSegment,
    Request,
    ReservedBytes,
    pinned_segments,
    split_reserved,
)
from et_replay.origins import MemoryClass, Origin
from et_replay.planning import Plan
from et_replay.serving import run_before, simulator_for
from et_replay.simulation import Simulator

_NAMELESS = Origin("-")


class Moment(enum.Enum):
    """Which moment of a history is explained."""

    FAILURE = "oom"
    PEAK = "peak"


@dataclass(frozen=True)
class LiveGroup:
    """Live storages of one origin: their blocks, and the bytes that the allocator counts."""

    origin: Origin
    count: int
    bytes: int


@dataclass(frozen=True)
class Failures:
    """Events that fail here, against those that failed when the history was recorded.

    `new` were served then, `reproduced` failed as they do here, and `absent` do not fail here.
    """

    new: tuple[int, ...] = ()
    reproduced: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Explanation:
    """A moment of a run: after event `row` (-1: before the first one).

    `failure` is what failed there, None for a peak. `groups` are live, the largest first, and
    `classes` the same by what it is for. `request` is what was asked for at the moment, and
    `reserved` is seen from there.
    """

    allocator: str
    row: int
    failure: OutOfMemoryError | None
    failures: Failures
    request: Request
    origin: Origin
    statistics: MemoryStatistics
    groups: Sequence[LiveGroup]
    classes: dict[MemoryClass, int]
    class_rule: str
    segments: Sequence[SegmentState]
    reserved: ReservedBytes
    pinned: Sequence[PinnedSegment]
    timeline: Timeline


def explain(
    history: MemoryHistory,
    allocator: str,
    capacity: int,
    *,
    moment: Moment = Moment.FAILURE,
    torch_version: str | None = None,
    plan: Plan | None = None,
    fraction: float | None = None,
) -> Explanation | None:
    """Run `history` on a simulated device of `capacity` bytes, and look at one moment of it.

    The failure is the first that the history does not have itself, else the last of its own, at
    which the job ended. The peak is where most was allocated, which may be before the first event.
    A history without events is all state: that is looked at. None where nothing fails.
    `fraction` is how much of the device the allocator may hold.
    """

    def fresh() -> Simulator:
        return simulator_for(
            history, allocator, capacity, torch_version=torch_version, plan=plan, fraction=fraction
        )

    simulator = fresh()
    failure = _failure_before(simulator, history, allocator)
    if failure is not None or not len(history.events):
        return _look(history, allocator, simulator, -1, failure, Failures(), _no_time())
    before = simulator.allocated
    timeline = simulator.timeline_of(history.events)
    failed, reproduced = simulator.failures, simulator.reproduced
    failures = Failures(_rows(failed), _rows(reproduced), tuple(simulator.unexpected))
    row = int(np.argmax(np.append(before, timeline.allocated))) - 1
    if moment is Moment.FAILURE:
        if not failed and not reproduced:
            return None
        failure = failed[0] if failed else reproduced[-1]
        row = -1 if failure.event is None else failure.event
    simulator = fresh()
    run_before(simulator, history, allocator)
    simulator.run(history.events, 0, row + 1, keep_going=True)
    return _look(history, allocator, simulator, row, failure, failures, timeline)


def _failure_before(
    simulator: Simulator, history: MemoryHistory, allocator: str
) -> OutOfMemoryError | None:
    """Serve what lives before the first event; return the error if that does not fit."""
    try:
        run_before(simulator, history, allocator)
    except OutOfMemoryError as error:
        return error
    return None


def _look(
    history: MemoryHistory,
    allocator: str,
    simulator: Simulator,
    row: int,
    failure: OutOfMemoryError | None,
    failures: Failures,
    timeline: Timeline,
) -> Explanation:
    segments = simulator.segments()
    request = _request(history.events, row, failure)
    groups = _groups(segments, history)
    origin = _NAMELESS
    if row >= 0:
        origin = history.origins.get(int(history.events.storage[row]), _NAMELESS)
        if failure is not None:
            _locate(failure, int(history.events.node_id[row]), origin)
    return Explanation(
        allocator=allocator,
        row=row,
        failure=failure,
        failures=failures,
        request=request,
        origin=origin,
        statistics=simulator.statistics(),
        groups=groups,
        classes=_classes(groups),
        class_rule=history.class_rule,
        segments=segments,
        reserved=split_reserved(segments, request),
        pinned=pinned_segments(segments, request),
        timeline=timeline,
    )


def _locate(failure: OutOfMemoryError, node_id: int, origin: Origin) -> None:
    failure.node_id = node_id if node_id >= 0 else None
    failure.operator = None if origin is _NAMELESS else origin.maker


def _classes(groups: Iterable[LiveGroup]) -> dict[MemoryClass, int]:
    """Add up the bytes by what they are for, the largest first."""
    classes: dict[MemoryClass, int] = defaultdict(int)
    for group in groups:
        classes[group.origin.memory_class] += group.bytes
    return dict(sorted(classes.items(), key=lambda item: -item[1]))


def _rows(failures: Iterable[OutOfMemoryError]) -> tuple[int, ...]:
    return tuple(failure.event for failure in failures if failure.event is not None)


def _request(events: AllocationEvents, row: int, failure: OutOfMemoryError | None) -> Request:
    if row < 0:
        return Request(LARGE if failure is None else failure.requested)
    size = int(events.size[row]) if failure is None else failure.requested
    pool = pool_id(int(routed_pools(events)[row]))
    return Request(size, max(int(events.stream[row]), 0), pool)


def _groups(segments: Iterable[SegmentState], history: MemoryHistory) -> list[LiveGroup]:
    sizes: dict[Origin, list[int]] = defaultdict(list)
    for segment in segments:
        for block in segment.blocks:
            if block.storage >= 0:
                sizes[history.origins.get(block.storage, _NAMELESS)].append(block.size)
    groups = [LiveGroup(origin, len(blocks), sum(blocks)) for origin, blocks in sizes.items()]
    return sorted(groups, key=lambda group: (-group.bytes, group.origin.maker))


def _no_time() -> Timeline:
    nothing = np.zeros(0, dtype=np.int64)
    return Timeline(nothing, nothing, nothing, nothing)
