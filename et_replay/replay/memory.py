"""The memory of the replay's device: simulated beside the operations, or measured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import torch

from et_replay import pluggable
from et_replay.errors import OutOfMemoryError
from et_replay.events import Action, AllocationEvents
from et_replay.formats.allocator_settings import settings_from_fields
from et_replay.planning import Plan
from et_replay.program.program import Program
from et_replay.program.schedule import Step
from et_replay.replay.failure_state import FailureState, live_addresses
from et_replay.replay.journal import Journal
from et_replay.replay.out_of_memory_watch import OutOfMemoryWatch, segments_in
from et_replay.replay.result import MemoryPeaks
from et_replay.replay.target import Target
from et_replay.simulation import TORCH, PlanFigures, Simulator
from et_replay.units import format_bytes, parse_bytes

_WATCH = OutOfMemoryWatch()
_TRIED = re.compile(r"Tried to allocate ([\d.]+ \w+)")


class DeviceMemory(Protocol):
    """What the engine tells about storages, and asks about memory."""

    capacity: int

    @property
    def steps(self) -> bool: ...

    @property
    def allocated(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def begin_iteration(self) -> None: ...

    def allocate(self, storage: int) -> None: ...

    def free(self, storages: Iterable[int]) -> None: ...

    def step(self, k: int) -> None: ...

    def step_inside(self, k: int) -> None: ...

    def explain(self, error: torch.OutOfMemoryError) -> OutOfMemoryError: ...

    def plan_figures(self) -> PlanFigures | None: ...

    def failure_state(self) -> FailureState | None: ...

    def reset_peaks(self) -> None: ...

    def peaks(self) -> MemoryPeaks: ...


class SimulatedMemory:
    """An allocator of a torch version over a device that is not there, fed with a replay's events.

    It has `capacity` bytes less `other_memory`, which is not PyTorch's. Every iteration starts from
    the same allocator state, with an empty cache: figures do not depend on how many iterations are
    run. A constant `workspace` stands for what libraries allocate without a node.
    """

    def __init__(
        self,
        program: Program,
        events: AllocationEvents,
        steps: list[Step],
        allocator: str,
        capacity: int,
        other_memory: int,
        workspace: int,
        plan: Plan | None = None,
        torch_version: str | None = None,
    ) -> None:
        self.capacity = capacity
        self.plan = plan
        self._storages = program.storages
        self._starts = events.steps.tolist()
        # Arrivals come first in a step; with flushes the engine causes them itself.
        self._inside = [
            s + len(step.arrivals) for s, step in zip(self._starts, steps, strict=False)
        ]
        self._simulator = Simulator(
            allocator,
            capacity - other_memory,
            torch_version=torch_version,
            plan=None if plan is None else plan.columns(),
        )
        self._play = self._simulator.player(events)
        self._journal = Journal(events)
        self._workspace = workspace

    @property
    def steps(self) -> bool:
        return True

    @property
    def allocated(self) -> int:
        return self._simulator.allocated

    def start(self) -> None:
        """Allocate what is there before the first operation."""
        self._journal.note(Action.ALLOC, len(self._storages), self._workspace)
        self._simulator.allocate(len(self._storages), self._workspace)
        self._journal.play(0, self._starts[0])
        self._play(0, self._starts[0])

    def stop(self) -> None:
        pass

    def begin_iteration(self) -> None:
        self._journal.begin_iteration()
        self._simulator.empty_cache()

    def allocate(self, storage: int) -> None:
        size = self._storages[storage].size
        self._journal.note(Action.ALLOC, storage, size)
        self._simulator.allocate(storage, size)

    def free(self, storages: Iterable[int]) -> None:
        for storage in storages:
            self._journal.note(Action.FREE, storage)
            self._simulator.free(storage)

    def step(self, k: int) -> None:
        """Run all events of operation `k`."""
        begin, end = self._starts[k], self._starts[k + 1]
        if begin < end:
            self._journal.play(begin, end)
            self._play(begin, end)

    def step_inside(self, k: int) -> None:
        """Run the events of operation `k` except its arrivals."""
        self._journal.play(self._inside[k], self._starts[k + 1])
        self._play(self._inside[k], self._starts[k + 1])

    def explain(self, error: torch.OutOfMemoryError) -> OutOfMemoryError:
        """Never asked: a simulated device raises our own error."""
        raise error

    def failure_state(self) -> FailureState | None:
        """None: `events` lead to the failure again."""
        return None

    def events(self) -> AllocationEvents:
        """Return what was asked for before the first iteration, and in the last one."""
        return self._journal.events()

    def live(self) -> list[int]:
        """List the storages on the device."""
        return [s for s in range(len(self._storages)) if self._simulator.address(s)]

    def plan_figures(self) -> PlanFigures | None:
        """Return what the planned allocator has served so far."""
        return self._simulator.plan_figures()

    def reset_peaks(self) -> None:
        self._simulator.reset_peaks()

    def peaks(self) -> MemoryPeaks:
        return MemoryPeaks.of(self._simulator.statistics())


class RealMemory:
    """A CUDA device, on which the operators themselves create storages: nothing is told of them.

    At most `capacity` bytes of it are used, None being all that it has.
    """

    def __init__(self, target: Target, capacity: int | None) -> None:
        self.device = target.device
        self.total = torch.cuda.get_device_properties(self.device).total_memory
        self.capacity = self.total if capacity is None else min(capacity, self.total)

    @property
    def steps(self) -> bool:
        return False

    def begin_iteration(self) -> None:
        pass

    def allocate(self, storage: int) -> None:
        pass

    def free(self, storages: Iterable[int]) -> None:
        pass

    def step(self, k: int) -> None:
        pass

    def step_inside(self, k: int) -> None:
        pass


class MeasuredMemory(RealMemory):
    """PyTorch's own statistics of a real CUDA device, where storages are really created.

    `settings` in PYTORCH_ALLOC_CONF's syntax are those of the process from here on. Raises
    UsageError for wrong ones.
    """

    def __init__(self, target: Target, capacity: int | None, settings: str = "") -> None:
        if settings:
            pluggable.configure_torch(settings)
        super().__init__(target, capacity)
        self._share = self.capacity / self.total

    @property
    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    @property
    def configuration(self) -> str:
        """The allocator with the settings that are in force, whoever set them."""
        fields = torch.cuda.memory._snapshot()["allocator_settings"]
        settings = settings_from_fields(fields).text
        return f"{TORCH}:{settings}" if settings else TORCH

    def start(self) -> None:
        """Limit the device, and leave nothing of earlier work in the figures to come."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        torch.cuda.set_per_process_memory_fraction(self._share, self.device)
        _WATCH.start(self.device.index)

    def stop(self) -> None:
        _WATCH.stop()
        with suppress(RuntimeError):  # of a device that failed, which must not hide its failure
            torch.cuda.set_per_process_memory_fraction(1.0, self.device)

    def explain(self, error: torch.OutOfMemoryError) -> OutOfMemoryError:
        """Turn PyTorch's out-of-memory error into ours, with PyTorch's figures.

        It tells not the request, but what the device was asked for to serve it.
        """
        state = self._failure()
        if state is None:
            match = _TRIED.search(str(error))
            asked, limit, largest_free = parse_bytes(match[1]) if match else 0, self.capacity, 0
            allocated = torch.cuda.memory_allocated(self.device)
            reserved = torch.cuda.memory_reserved(self.device)
        else:
            asked, limit, largest_free = state.asked, state.limit, state.largest_free
            allocated, reserved = state.allocated, state.reserved
        return OutOfMemoryError(
            f"Out of memory: {self.device} has no {format_bytes(asked)} left for a request: of the"
            f" {format_bytes(limit)} that may be used, {format_bytes(allocated)} are allocated and"
            f" {format_bytes(reserved - allocated)} are reserved but unallocated.",
            requested=asked,
            capacity=self.capacity,
            allocated=allocated,
            reserved=reserved,
            largest_free=largest_free,
            limit=limit,
        )

    def plan_figures(self) -> None:
        pass

    def failure_state(self) -> FailureState | None:
        """Return the device's state at the request that failed, as far as torch tells it.

        Call it when the operation that failed has let go of all that it held.
        """
        state = self._failure()
        if state is None:
            return None
        now = live_addresses(segments_in(torch.cuda.memory._snapshot(), self.device.index))
        return replace(state, abandoned=live_addresses(state.segments) - now)

    def _failure(self) -> FailureState | None:
        state = _WATCH.last()
        return None if state is None else replace(state, limit=min(state.limit, self.capacity))

    def reset_peaks(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def peaks(self) -> MemoryPeaks:
        stats = torch.cuda.memory_stats(self.device)
        return MemoryPeaks(
            stats["allocated_bytes.all.peak"],
            stats["active_bytes.all.peak"],
            stats["reserved_bytes.all.peak"],
        )
