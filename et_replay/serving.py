"""A memory history and an allocator in, a simulator that is ready for its first event out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import AllocationEvents, MemoryHistory
from et_replay.formats.allocator_settings import options_in, settings_from_text
from et_replay.planning import Plan, plan_history
from et_replay.simulation import (
    PLANNED,
    VERSIONS,
    Simulator,
    allocator_name,
    usable_bytes,
)
from et_replay.units import format_bytes

DEFAULT_DEVICE_MEMORY = 80 * 2**30


def capacity_for(history: MemoryHistory, device_memory: int | None) -> int:
    """Return the bytes to simulate: those asked for, else proven, else of the GPU, else 80 GiB."""
    if device_memory is not None:
        return device_memory
    return history.device_memory or history.gpu_memory or DEFAULT_DEVICE_MEMORY


def left_for_torch(device_memory: int, other_memory: int) -> int:
    """Return what of a device is PyTorch's; raises UsageError where nothing is."""
    if other_memory >= device_memory:
        raise UsageError(
            f"--other-memory {format_bytes(other_memory)} leaves nothing of the device memory of"
            f" {format_bytes(device_memory)}; give more --device-memory."
        )
    return device_memory - other_memory


def as_recorded(history: MemoryHistory) -> str:
    """Return the allocator that served `history` when it was recorded."""
    return f"native:{history.settings}" if history.settings else "native"


def with_known_settings(history: MemoryHistory, torch_version: str | None = None) -> MemoryHistory:
    """Leave out recorded settings that no version, or not `torch_version`, takes, and say so."""
    versions = VERSIONS if torch_version is None else (torch_version,)
    if not history.settings or not _refusal(history.settings, versions):
        return history
    refusals = {option: _refusal(option, versions) for option in options_in(history.settings)}
    known = ",".join(option for option, refusal in refusals.items() if not refusal)
    notes = [
        f"The recorded setting {option} is left out: {refusal}"
        for option, refusal in refusals.items()
        if refusal
    ]
    if not notes or _refusal(known, versions):  # none of them alone is what cannot be
        known = ""
        notes = [f"All recorded settings are left out: {_refusal(history.settings, versions)}"]
    return replace(history, settings=known, notes=(*history.notes, *notes))


def versions_with(settings: str) -> list[str]:
    """List the versions whose native allocator takes these settings, the oldest first."""
    return [version for version in VERSIONS if not _refusal(settings, (version,))]


def _refusal(settings: str, versions: Sequence[str]) -> str:
    """Return why the last of the versions does not take settings, "" where one does."""
    refusal = ""
    for version in versions:
        try:
            Simulator(f"native:{settings}", torch_version=version)
        except UsageError as error:
            refusal = str(error)
        else:
            return ""
    return refusal


def share_of(
    history: MemoryHistory, asked: float | None, device_memory: int | None
) -> float | None:
    """Return what share of the device PyTorch may hold: as asked for, else as was recorded.

    Raises UsageError for a share of what the file proves, which is PyTorch's already.
    """
    if asked is None:
        recorded = settings_from_text(history.settings).fraction
        return recorded if recorded < 1 else None
    if device_memory is None and history.device_memory is not None:
        raise UsageError(
            f"--memory-fraction needs --device-memory: {history.source} tells what PyTorch could"
            " get, not what the device had."
        )
    return asked


def plan_for(history: MemoryHistory, allocator: str, plan: Plan | None = None) -> Plan | None:
    """Return what `allocator` serves: `plan`, or one made here; None for one that serves none."""
    if allocator_name(allocator) != PLANNED:
        return None
    return plan or plan_history(history)


def simulator_for(
    history: MemoryHistory,
    allocator: str,
    capacity: int,
    *,
    torch_version: str | None = None,
    plan: Plan | None = None,
    fraction: float | None = None,
    record_trace: bool = False,
) -> Simulator:
    """Return a simulator for `history`; `run_before` fills it with what lives before its events.

    The native allocator, plain or as recorded, starts from the segments that were reserved then, if
    they fit.
    As recorded, the device gives the recorded addresses, unless they are in use: among equal blocks
    the allocator takes the lowest, so what it does depends on them. Raises UsageError for an
    allocator, a setting or a version that there is not.
    """
    usable = usable_bytes(capacity, fraction)
    exact = allocator == as_recorded(history)
    return Simulator(
        allocator,
        capacity,
        torch_version=torch_version,
        start=history.segments if _starts_as_recorded(history, allocator, usable) else (),
        device_addresses=history.device_addresses if exact else (),
        plan=None if plan is None else plan.columns(),
        fraction=fraction,
        record_trace=record_trace,
    )


def run_before(simulator: Simulator, history: MemoryHistory, allocator: str) -> None:
    """Let an allocator that cannot start as recorded serve what lives before the first event.

    Raises OutOfMemoryError, which then names no event of the history.
    """
    if _starts_as_recorded(history, allocator, simulator.usable):
        return
    try:
        simulator.run(_requests_before(history))
    except OutOfMemoryError as error:
        error.event = None
        raise


def _starts_as_recorded(history: MemoryHistory, allocator: str, usable: int) -> bool:
    reserved = sum(segment.size for segment in history.segments)
    return reserved <= usable and allocator in ("native", as_recorded(history))


def _requests_before(history: MemoryHistory) -> AllocationEvents:
    """Ask for what lives in the recorded start state, in the order of addresses."""
    live = [
        (block.storage, block.requested, segment.stream)
        for segment in history.segments
        for block in segment.blocks
        if block.storage >= 0 and not block.active_only
    ]
    storage, size, stream = (
        np.array([row[column] for row in live], dtype=np.int64) for column in range(3)
    )
    return AllocationEvents(
        action=np.zeros(len(live), dtype=np.int8),
        storage=storage,
        size=size,
        stream=stream,
        node_id=np.full(len(live), -1, dtype=np.int64),
        steps=np.zeros(0, dtype=np.int64),
    )
