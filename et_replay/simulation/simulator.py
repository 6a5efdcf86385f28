"""Memory of a device that is not there: allocation events in, counters and addresses out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from et_replay import _core
from et_replay.allocator_figures import IterationFigures, MemoryStatistics, PlanFigures
from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import (
    AllocationEvents,
    Int64Array,
    PlanColumns,
    RunPlan,
    SegmentState,
    Timeline,
    TraceEntry,
)
from et_replay.simulation.allocators import NEWEST_VERSION, usable_bytes
from et_replay.simulation.native import (
    CORE_ERRORS,
    ERRORS_OF_EVENTS,
    explained,
    native_events,
    native_plan,
    native_requests,
    out_of_memory_of,
    restore_all,
    segment_state,
)


class Simulator:
    """An allocator over `device_memory` simulated bytes; a storage has at most one block.

    `allocator` is a name of ALLOCATORS, and behind a colon settings in PYTORCH_ALLOC_CONF's syntax:
    "native:max_split_size_mb:128". `torch_version` is whose allocator is imitated, from "2.7" on;
    None is the newest. `start` is what is reserved before the first event. `device_addresses` are
    those of the segments and mapped parts that the device gives from then on, in order: pass them
    only with the settings under which they were recorded. `fraction` of the device is how much the
    allocator may hold. With `record_trace` all that it does is kept for `trace`. `plan` is for the
    allocator "stalloc", which without one is "native".
    """

    def __init__(
        self,
        allocator: str = "native",
        device_memory: int = 80 * 2**30,
        *,
        torch_version: str | None = None,
        start: Sequence[SegmentState] = (),
        device_addresses: Sequence[int] = (),
        fraction: float | None = None,
        record_trace: bool = False,
        plan: PlanColumns | None = None,
    ) -> None:
        if not 0 <= device_memory <= 2**50:
            raise UsageError(f"Expected a device memory up to 1 PiB, got {device_memory} bytes.")
        self._fraction = fraction
        name, _, settings = allocator.partition(":")
        try:
            self._native = _core.Simulation(
                device_memory,
                allocator=name,
                settings=settings,
                torch_version=torch_version or NEWEST_VERSION,
                device_addresses=device_addresses,
                plan=None if plan is None else native_plan(plan),
            )
            if fraction is not None:
                self._native.set_fraction(fraction)
            restore_all(self._native, start)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self.reset_peaks()
        if record_trace:
            self._native.record_trace()

    def follow(self, plan: RunPlan) -> None:
        """Serve requests by their size, stream and place in the list of `plan` from here on.

        The simulator must have its `columns`. What storage a request is for tells it nothing then.
        """
        self._native.follow(**native_requests(plan))

    def begin_iteration(self, iteration: int) -> IterationFigures:
        """Go to where an iteration of the list that is followed begins; past its last, to that.

        Returns the figures of the iteration that has ended.
        """
        return IterationFigures.of(self._native.begin_iteration(iteration))

    def allocate(self, storage: int, size: int, stream: int = 0) -> None:
        """Give `storage` a block; a size of 0 takes none. Raises OutOfMemoryError."""
        try:
            self._native.allocate(storage, size, stream)
        except CORE_ERRORS as error:
            raise explained(error) from None

    def free(self, storage: int) -> None:
        """Free the block of `storage`, if it has one."""
        self._native.free(storage)

    def run(
        self,
        events: AllocationEvents,
        begin: int = 0,
        end: int | None = None,
        *,
        keep_going: bool = False,
    ) -> None:
        """Run the events [begin, end).

        Raises OutOfMemoryError with the row that failed, or with `keep_going` adds it to `failures`
        and goes on; and UndefinedBehaviorError where torch itself breaks or refuses. The rows
        before the failing one have happened.
        """
        self.player(events, keep_going=keep_going)(begin, len(events) if end is None else end)

    def player(
        self, events: AllocationEvents, *, keep_going: bool = False
    ) -> Callable[[int, int], None]:
        """Return `run` for these events: what costs least where they are run a few at a time."""
        native = native_events(events)
        run = self._native.run

        def play(begin: int, end: int) -> None:
            try:
                run(native, begin, end, keep_going=keep_going)
            except ERRORS_OF_EVENTS as error:
                raise explained(error) from None

        return play

    def addresses_of(self, events: AllocationEvents, *, keep_going: bool = False) -> Int64Array:
        """Run all events as `run` does, and return the address of each one's block, or 0."""
        addresses: Int64Array = np.zeros(len(events), dtype=np.int64)
        self._note(events, keep_going, addresses=addresses)
        return addresses

    def timeline_of(self, events: AllocationEvents) -> Timeline:
        """Run all events, failing requests left out, and return what was held after each."""
        timeline = Timeline(*(np.zeros(len(events), dtype=np.int64) for _ in range(4)))
        self._note(
            events,
            True,
            addresses=timeline.addresses,
            allocated=timeline.allocated,
            reserved=timeline.reserved,
            entries=timeline.entries,
        )
        return timeline

    def _note(self, events: AllocationEvents, keep_going: bool, **columns: Int64Array) -> None:
        """Run all events, and write what came of each to the columns."""
        native = native_events(events)
        try:
            self._native.run(native, 0, len(events), keep_going=keep_going, **columns)
        except ERRORS_OF_EVENTS as error:
            raise explained(error) from None

    @property
    def failures(self) -> list[OutOfMemoryError]:
        """Requests that did not fit while events were run with `keep_going`."""
        return [out_of_memory_of(failure) for failure in self._native.failures()]

    @property
    def reproduced(self) -> list[OutOfMemoryError]:
        """The failures of OUT_OF_MEMORY events, whose request did not fit here either."""
        return [out_of_memory_of(failure) for failure in self._native.reproduced()]

    @property
    def unexpected(self) -> list[int]:
        """The rows of OUT_OF_MEMORY events whose request did fit."""
        return self._native.unexpected()

    def address(self, storage: int) -> int:
        """Return the address of the storage's block, 0 where it has none."""
        return self._native.address(storage)

    def memory_stats(self) -> dict[str, int]:
        """Return the counters under the names of `torch.cuda.memory_stats()`."""
        return self._native.memory_stats()

    def segments(self) -> tuple[SegmentState, ...]:
        """Return what is reserved, by address: what another simulator can `start` from."""
        return tuple(segment_state(segment) for segment in self._native.segments())

    def plan_figures(self) -> PlanFigures | None:
        """Return how the plan was served; None for an allocator that serves none."""
        figures = self._native.plan_figures()
        return None if figures is None else PlanFigures.of(figures)

    def trace(self) -> list[TraceEntry]:
        """Return what happened since the start, if it was to be recorded."""
        return [TraceEntry(*entry) for entry in self._native.trace()]

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
    def usable(self) -> int:
        """The bytes of the device that may be used."""
        return usable_bytes(self.capacity, self._fraction)

    @property
    def capacity(self) -> int:
        return self._native.capacity

    def statistics(self) -> MemoryStatistics:
        """Return the counters as they stand."""
        return MemoryStatistics.of(self._native.memory_stats())
