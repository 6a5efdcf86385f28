"""A history and an allocator in, the smallest device memory in which it is served, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from et_replay.errors import OutOfMemoryError, TraceError, UndefinedBehaviorError
from et_replay.events import Action, AllocationEvents, MemoryHistory
from et_replay.planning import Plan
from et_replay.serving import plan_for, run_before, simulator_for
from et_replay.simulation import Simulator
from et_replay.units import format_bytes

STEP = 2 * 2**20
"""What CUDA gives memory in, and PyTorch's allocator asks for multiples of."""
PLENTY = 2**50
"""More than any device has."""
_PROBES = 12


@dataclass(frozen=True)
class Fit:
    """The device memory that one allocator needs for one history, in bytes.

    With `device_memory` the allocator never has to give memory back to go on: it is its peak
    reserved, or where that does not suffice the next size that does. `least` is the smallest size
    found, in steps of 2 MiB, in which every request is served, though the cache may be given back
    on the way: `retries` times, each of which waits for the device. Caching allocators need not
    serve more with more memory: where a size above `least` was seen to fail, `monotone` is false,
    and `least` lies above it. `undefined` says where torch itself breaks; the sizes are 0 then.
    """

    allocator: str
    device_memory: int
    least: int
    retries: int
    monotone: bool
    peak_allocated: int
    undefined: str = ""


def find_fit(
    history: MemoryHistory,
    allocator: str,
    *,
    torch_version: str | None = None,
    plan: Plan | None = None,
) -> Fit:
    """Search the smallest device memory for `history`.

    Requests that failed when they were recorded are served, and freed at once: what the job would
    have done with them is not known. `stalloc` serves `plan`, or one that is made here. Raises
    TraceError where that takes more memory than any device has.
    """
    history = with_failures_served(history)
    plan = plan_for(history, allocator, plan)

    def served(capacity: int) -> Simulator | None:
        return serve(history, allocator, capacity, torch_version=torch_version, plan=plan)

    try:
        roomy = served(PLENTY)
    except UndefinedBehaviorError as error:
        return Fit(allocator, 0, 0, 0, True, 0, undefined=str(error))
    if roomy is None:
        raise TraceError(
            f"{history.source} needs more than {format_bytes(PLENTY)} at once under {allocator},"
            " which no device has."
        )
    figures = roomy.statistics()
    enough = _enough(served, figures.peak_reserved_bytes)
    least, monotone = _least(served, figures.peak_requested_bytes, enough)
    tight = served(least)
    return Fit(
        allocator=allocator,
        device_memory=enough,
        least=least,
        retries=0 if tight is None else tight.statistics().alloc_retries,
        monotone=monotone,
        peak_allocated=figures.peak_allocated_bytes,
    )


def serve(
    history: MemoryHistory,
    allocator: str,
    capacity: int,
    *,
    torch_version: str | None = None,
    plan: Plan | None = None,
) -> Simulator | None:
    """Return the simulator that has served every request, None where one did not fit."""
    simulator = simulator_for(history, allocator, capacity, torch_version=torch_version, plan=plan)
    try:
        run_before(simulator, history, allocator)
        simulator.run(history.events)
    except OutOfMemoryError:
        return None
    return simulator


def with_failures_served(history: MemoryHistory) -> MemoryHistory:
    """Let every recorded failure be an allocation that is freed at once."""
    events = history.events
    failed = np.flatnonzero(events.action == Action.OUT_OF_MEMORY)
    if not len(failed):
        return history
    storage, action, origins = events.storage.copy(), events.action.copy(), dict(history.origins)
    before = (block.storage for segment in history.segments for block in segment.blocks)
    fresh = max(int(storage.max(initial=0)), *before, 0) + 1
    for number, row in enumerate(failed.tolist(), fresh):
        if int(storage[row]) in origins:
            origins[number] = origins[int(storage[row])]
        storage[row], action[row] = number, Action.ALLOC
    return replace(
        history,
        events=AllocationEvents(
            action=np.insert(action, failed + 1, Action.FREE),
            storage=np.insert(storage, failed + 1, storage[failed]),
            size=np.insert(events.size, failed + 1, events.size[failed]),
            stream=np.insert(events.stream, failed + 1, events.stream[failed]),
            node_id=np.insert(events.node_id, failed + 1, events.node_id[failed]),
            steps=events.steps + np.searchsorted(failed, events.steps),
        ),
        addresses=np.insert(history.addresses, failed + 1, 0),
        origins=origins,
    )


def _enough(served: Callable[[int], Simulator | None], reserved: int) -> int:
    """Return the least size from the peak reserved on that needs no retry."""
    size = reserved
    while (simulator := served(size)) is None or simulator.statistics().alloc_retries:
        size = _up(size + 1)
    return size


def _least(served: Callable[[int], Simulator | None], live: int, enough: int) -> tuple[int, bool]:
    """Bisect between the bytes that live at once and what surely suffices; then look for gaps."""
    most = _up(enough)
    fails, suffices = live // STEP - 1, most // STEP
    while suffices - fails > 1:
        middle = (fails + suffices) // 2
        if served(middle * STEP):
            suffices = middle
        else:
            fails = middle
    least = suffices
    probes = np.linspace(least, most // STEP, _PROBES, dtype=np.int64)[1:-1]
    for probe in np.unique(probes).tolist():
        if not served(probe * STEP):
            least = probe + 1
    monotone = least == suffices
    while not served(least * STEP):
        least += 1
    return min(least * STEP, enough), monotone


def _up(size: int) -> int:
    return -(-size // STEP) * STEP
