"""Memory histories and allocators in, a row of figures for each pair of them out."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from et_replay.errors import OutOfMemoryError, UndefinedBehaviorError
from et_replay.events import Action, AllocationEvents, MemoryHistory
from et_replay.planning import Plan
from et_replay.serving import (
    as_recorded,
    capacity_for,
    plan_for,
    run_before,
    simulator_for,
    versions_with,
)
from et_replay.simulation import (
    NEWEST_VERSION,
    MemoryStatistics,
    PlanFigures,
    Simulator,
)


@dataclass(frozen=True)
class AddressCheck:
    """How many recorded addresses a simulation under the recorded settings gives again.

    `first_difference` is the first event, with the recorded and the simulated address, or None.
    """

    torch_version: str
    compared: int
    equal: int
    first_difference: tuple[int, int, int] | None


@dataclass(frozen=True)
class Comparison:
    """What one allocator makes of one history.

    The statistics' peaks cover all iterations up to a failure; `reserved_by_iteration` are the
    bytes reserved at the end of each. `failed_iteration` counts from 1. `plan` is what `stalloc`
    served, and `plan_figures` how many requests it had an address for.
    """

    allocator: str
    torch_version: str
    statistics: MemoryStatistics
    reserved_by_iteration: tuple[int, ...]
    out_of_memory: OutOfMemoryError | None
    failed_iteration: int | None
    undefined: str
    duration: int
    plan: Plan | None = None
    plan_figures: PlanFigures | None = None

    @property
    def fragmentation(self) -> float:
        """1 - peak allocated / peak reserved, 0 where nothing was reserved."""
        reserved = self.statistics.peak_reserved_bytes
        return 1 - self.statistics.peak_allocated_bytes / reserved if reserved else 0.0


def reproduce(
    history: MemoryHistory,
    torch_version: str | None = None,
    device_memory: int | None = None,
    fraction: float | None = None,
) -> AddressCheck | None:
    """Simulate `history` as it was recorded, and count the addresses that come out again.

    Without `torch_version` the orders of blocks are tried that versions with these settings have
    had, and the one that gives most addresses is taken. `device_memory` in bytes and
    `fraction` are those of `compare`: what an expandable segment reserves, and when garbage is
    collected, depends on them. None for all but snapshots with events: the addresses of other logs
    are not those of PyTorch's allocator.
    """
    recorded = np.any(history.addresses[history.events.action == Action.ALLOC])
    if history.kind != "memory snapshot" or not recorded:
        return None
    versions = [torch_version] if torch_version else _candidates(history)
    capacity = device_memory or history.device_memory or 2**50
    checks = [_reproduce(history, version, capacity, fraction) for version in versions]
    return max(checks, key=lambda check: check.equal)


def version_to_imitate(
    history: MemoryHistory,
    asked: str | None,
    device_memory: int | None = None,
    fraction: float | None = None,
) -> tuple[AddressCheck | None, str]:
    """Return whose allocator to imitate, and how it fits the recorded addresses, if it has any.

    That is the version asked for, else the one that gives most of the addresses, else the newest
    that has the recorded settings.
    """
    check = reproduce(history, asked, device_memory, fraction)
    if check is not None:
        return check, check.torch_version
    return None, asked or versions_with(history.settings)[-1]


def compare(
    history: MemoryHistory,
    allocator: str,
    *,
    torch_version: str | None = None,
    device_memory: int | None = None,
    iterations: int = 1,
    plan: Plan | None = None,
    fraction: float | None = None,
    warmup: int | None = None,
) -> Comparison:
    """Serve `history` from `allocator`, over and over without a reset.

    A request that failed when it was recorded, and fails here too, is the row's failure.
    `device_memory` is in bytes; without it that of `capacity_for` counts. Memory that
    was reserved before the first event is taken as recorded by the plain native allocator; the
    others get the requests that live in it first. `stalloc` serves `plan`, or one that is made here
    and not counted in `duration`. `fraction` is how much of the device the allocator may hold, as
    `torch.cuda.set_per_process_memory_fraction` sets it. With `warmup` the peaks are only those of
    the `iterations` that follow after so many others. Raises UsageError for an allocator, a
    setting or a version that there is not.
    """
    plan = plan_for(history, allocator, plan)
    simulator = simulator_for(
        history,
        allocator,
        capacity_for(history, device_memory),
        torch_version=torch_version,
        plan=plan,
        fraction=fraction,
    )
    outcome = _serve(simulator, history, allocator, iterations, warmup)
    return _row(simulator, outcome, allocator, torch_version or NEWEST_VERSION, plan)


@dataclass(frozen=True)
class _Outcome:
    """What came of a run, named as in Comparison."""

    reserved_by_iteration: tuple[int, ...]
    out_of_memory: OutOfMemoryError | None
    failed_iteration: int | None
    undefined: str
    duration: int


def _serve(
    simulator: Simulator,
    history: MemoryHistory,
    allocator: str,
    iterations: int,
    warmup: int | None,
) -> _Outcome:
    total = iterations + (warmup or 0)
    events = _repeatable(history.events) if total > 1 else history.events
    begin = int(events.steps[0]) if len(events.steps) else 0
    reserved: list[int] = []
    failure: OutOfMemoryError | None = None
    undefined = ""
    started = time.perf_counter_ns()
    try:
        run_before(simulator, history, allocator)
        simulator.run(events, 0, begin)
        for iteration in range(total):
            if iteration == warmup:
                simulator.reset_peaks()
            simulator.run(events, begin)
            reserved.append(simulator.reserved)
        failure = next(iter(simulator.reproduced), None)
    except OutOfMemoryError as error:
        failure = error
    except UndefinedBehaviorError as error:
        undefined = str(error)
    duration = time.perf_counter_ns() - started
    if failure is not None and failure.event is not None and events.node_id[failure.event] >= 0:
        failure.node_id = int(events.node_id[failure.event])
    return _Outcome(
        reserved_by_iteration=tuple(reserved[warmup or 0 :]),
        out_of_memory=failure,
        failed_iteration=min(len(reserved) + 1, total) if failure else None,
        undefined=undefined,
        duration=duration,
    )


def _row(
    simulator: Simulator, outcome: _Outcome, allocator: str, torch_version: str, plan: Plan | None
) -> Comparison:
    return Comparison(
        allocator=allocator,
        torch_version=torch_version,
        statistics=simulator.statistics(),
        reserved_by_iteration=outcome.reserved_by_iteration,
        out_of_memory=outcome.out_of_memory,
        failed_iteration=outcome.failed_iteration,
        undefined=outcome.undefined,
        duration=outcome.duration,
        plan=plan,
        plan_figures=simulator.plan_figures(),
    )


def _reproduce(
    history: MemoryHistory, torch_version: str, capacity: int, fraction: float | None
) -> AddressCheck:
    simulator = Simulator(
        as_recorded(history),
        capacity,
        torch_version=torch_version,
        start=history.segments,
        device_addresses=history.device_addresses,
        fraction=fraction,
    )
    simulated = simulator.addresses_of(history.events, keep_going=True)
    known = (history.events.action == Action.ALLOC) & (history.addresses != 0)
    different = np.flatnonzero(known & (simulated != history.addresses))
    first = int(different[0]) if len(different) else None
    return AddressCheck(
        torch_version=torch_version,
        compared=int(known.sum()),
        equal=int(known.sum()) - len(different),
        first_difference=None
        if first is None
        else (first, int(history.addresses[first]), int(simulated[first])),
    )


def _candidates(history: MemoryHistory) -> list[str]:
    """List the versions to try, the likeliest first; of a file the oldest that it fits is told.

    What decides ties between blocks changed in 2.12 and again in 2.13; before, versions agree.
    """
    oldest = [int(part) for part in history.torch_version.split(".")[:2] if part.isdigit()]
    known = versions_with(history.settings)
    tried = [version for version in ("2.11", "2.12", NEWEST_VERSION) if version in known]
    return (tried[::-1] if oldest >= [2, 12] else tried) or known[-1:]


def _repeatable(events: AllocationEvents) -> AllocationEvents:
    """Add FREEs at the end for what an iteration leaves behind, so that it can begin again."""
    begin = int(events.steps[0]) if len(events.steps) else 0
    left: dict[int, int] = {}
    for row in range(begin, len(events)):
        action, storage = events.action[row], int(events.storage[row])
        if action == Action.ALLOC:
            left[storage] = row
        elif action in (Action.FREE, Action.FREE_COMPLETED):
            left.pop(storage, None)
    rows = np.fromiter(left.values(), dtype=np.int64, count=len(left))
    return AllocationEvents(
        action=np.append(events.action, np.full(len(rows), Action.FREE, dtype=np.int8)),
        storage=np.append(events.storage, events.storage[rows]),
        size=np.append(events.size, events.size[rows]),
        stream=np.append(events.stream, events.stream[rows]),
        node_id=np.append(events.node_id, events.node_id[rows]),
        steps=events.steps,
    )
