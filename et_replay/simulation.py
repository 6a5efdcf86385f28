"""Memory of a device that is not there: allocation events in, counters and addresses out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from et_replay import _core
from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import AllocationEvents
from et_replay.units import format_bytes

ALLOCATORS = ("native",)


@dataclass(frozen=True)
class MemoryStatistics:
    """Counters as in `torch.cuda.memory_stats()`; peaks count from the last `reset_peaks`."""

    allocated_bytes: int
    peak_allocated_bytes: int
    active_bytes: int
    peak_active_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    requested_bytes: int
    peak_requested_bytes: int
    segments: int
    peak_segments: int
    alloc_retries: int
    ooms: int
    device_allocs: int
    device_frees: int


class Simulator:
    """An allocator over `device_memory` simulated bytes; a storage has at most one block."""

    def __init__(self, allocator: str = "native", device_memory: int = 80 * 2**30) -> None:
        if allocator not in ALLOCATORS:
            known = ", ".join(ALLOCATORS)
            raise UsageError(f"Expected an allocator among {known}, got {allocator!r}.")
        if not 0 <= device_memory <= 2**50:
            raise UsageError(f"Expected a device memory up to 1 PiB, got {device_memory} bytes.")
        self._native = _core.Simulation(device_memory)

    def allocate(self, storage: int, size: int, stream: int = 0) -> None:
        """Give `storage` a block; a size of 0 takes none. Raises OutOfMemoryError."""
        try:
            self._native.allocate(storage, size, stream)
        except _core.OutOfMemoryError as error:
            raise _explained(error) from None

    def free(self, storage: int) -> None:
        """Free the block of `storage`, if it has one."""
        self._native.free(storage)

    def run(self, events: AllocationEvents, begin: int = 0, end: int | None = None) -> None:
        """Run the events [begin, end).

        Raises OutOfMemoryError with the row that failed; the rows before it have happened.
        """
        self.player(events)(begin, len(events) if end is None else end)

    def player(self, events: AllocationEvents) -> Callable[[int, int], None]:
        """Return `run` for these events: what costs least where they are run a few at a time."""
        native = _core.Events(events.action, events.storage, events.size, events.stream)
        run = self._native.run

        def play(begin: int, end: int) -> None:
            try:
                run(native, begin, end)
            except _core.OutOfMemoryError as error:
                raise _explained(error) from None

        return play

    def address(self, storage: int) -> int:
        """Return the address of the storage's block, 0 where it has none."""
        return self._native.address(storage)

    def empty_cache(self) -> None:
        """Give every segment without a block in use back to the device."""
        self._native.empty_cache()

    def reset_peaks(self) -> None:
        """Start the peaks again from the current values."""
        self._native.reset_peaks()

    @property
    def allocated(self) -> int:
        return self._native.allocated

    @property
    def active(self) -> int:
        return self._native.active

    @property
    def reserved(self) -> int:
        return self._native.reserved

    @property
    def capacity(self) -> int:
        return self._native.capacity

    def statistics(self) -> MemoryStatistics:
        """Return the counters as they stand."""
        stats = self._native.memory_stats()
        return MemoryStatistics(
            allocated_bytes=stats["allocated_bytes.all.current"],
            peak_allocated_bytes=stats["allocated_bytes.all.peak"],
            active_bytes=stats["active_bytes.all.current"],
            peak_active_bytes=stats["active_bytes.all.peak"],
            reserved_bytes=stats["reserved_bytes.all.current"],
            peak_reserved_bytes=stats["reserved_bytes.all.peak"],
            requested_bytes=stats["requested_bytes.all.current"],
            peak_requested_bytes=stats["requested_bytes.all.peak"],
            segments=stats["segment.all.current"],
            peak_segments=stats["segment.all.peak"],
            alloc_retries=stats["num_alloc_retries"],
            ooms=stats["num_ooms"],
            device_allocs=stats["num_device_alloc"],
            device_frees=stats["num_device_free"],
        )


def _explained(error: _core.OutOfMemoryError) -> OutOfMemoryError:
    """Turn the native error into the user's, with a sentence."""
    exact = error.segment == error.requested
    needs = "" if exact else f" (a segment of {format_bytes(error.segment)})"
    message = (
        f"Out of memory: a request of {format_bytes(error.requested)}{needs} does not fit the"
        f" device of {format_bytes(error.capacity)}, of which {format_bytes(error.allocated)} are"
        f" allocated and {format_bytes(error.reserved - error.allocated)} are reserved but"
        " unallocated."
    )
    return OutOfMemoryError(
        message,
        requested=error.requested,
        capacity=error.capacity,
        allocated=error.allocated,
        reserved=error.reserved,
        largest_free=error.largest_free,
        event=None if error.event < 0 else error.event,
    )
