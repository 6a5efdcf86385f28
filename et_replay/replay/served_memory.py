"""The memory of a real device that one of our own allocators serves to torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from et_replay import pluggable
from et_replay.allocator_figures import PlanFigures
from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import Action
from et_replay.planning import Plan, plan_events
from et_replay.program.requests import RecordedRequests
from et_replay.replay.failure_state import FailureState, live_addresses
from et_replay.replay.memory import RealMemory
from et_replay.replay.result import Elsewhere, MemoryPeaks
from et_replay.replay.target import Target
from et_replay.simulation import nearest_version


class ServedMemory(RealMemory):
    """An allocator of ALLOCATORS in place of PyTorch's, up to `capacity` bytes of the device.

    Must be made before the first use of CUDA in the process. Raises UsageError where it cannot be.
    """

    def __init__(self, target: Target, allocator: str, capacity: int | None) -> None:
        if pluggable.out_of_memory_thrower() is None:  # what runs out would look like any failure
            raise UsageError(
                f"The allocator {allocator} on {target.device} needs a C++ compiler, to raise"
                " torch's error where memory runs out: install g++ or name one in CXX."
            )
        pluggable.install(allocator, capacity)
        name, _, settings = allocator.partition(":")
        expandable = "expandable_segments:True" if name == "expandable" else ""
        self._settings = ",".join(filter(None, (expandable, settings)))
        super().__init__(target, capacity)
        self.index = target.device.index or 0
        self._starts: list[int] = []

    @property
    def allocated(self) -> int:
        stats = pluggable.statistics(self.index)
        return stats.allocated_bytes if stats else 0

    def start(self) -> None:
        """Leave nothing of what was done ahead in the figures to come."""
        torch.cuda.empty_cache()
        pluggable.reset_peaks(self.index)

    def stop(self) -> None:
        pass

    @property
    def steps(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._starts)

    def step(self, k: int) -> None:
        """Tell the allocator which requests of its plan operation `k` is about to make."""
        pluggable.expect(self.index, self._starts[k], self._starts[k + 1])

    def step_inside(self, k: int) -> None:
        """Do what `step` does, where flushes come before it."""
        if self.steps:
            self.step(k)

    def adopt(self, recorded: RecordedRequests, plan: Plan | None) -> Plan:
        """Serve `plan`, or one for all of `recorded`, to the requests of one recorded iteration.

        All that the iteration took must be free again; the cache goes back to the device.
        """
        events = recorded.passing()
        rows = np.flatnonzero(events.action == Action.ALLOC)
        plan = plan_events(events) if plan is None else plan
        known = np.isin(events.storage[rows], plan.lifetimes.storage)
        self._starts = np.searchsorted(rows[known], events.steps).tolist()
        torch.cuda.empty_cache()
        pluggable.adopt(
            plan.columns(),
            events.storage[rows[known]],
            events.size[rows[known]],
            events.stream[rows[known]],
            self.index,
        )
        return plan

    def explain(self, error: torch.OutOfMemoryError) -> OutOfMemoryError:
        """Turn torch's error into ours, with the figures of the allocator."""
        failure = pluggable.last_failure(self.index)
        if failure is None:  # it was not raised for want of this device's memory
            raise error
        return failure[0]

    def failure_state(self) -> FailureState | None:
        """Return the device's state at the last request that did not fit.

        Call it when the operation that failed has let go of all that it held.
        """
        failure = pluggable.last_failure(self.index)
        if failure is None:
            return None
        error, segments = failure
        return FailureState(
            segments=segments,
            asked=error.segment,
            capacity=error.capacity,
            limit=error.limit,
            settings=self._settings,
            torch_version=nearest_version(torch.__version__),
            abandoned=live_addresses(segments) - live_addresses(pluggable.segments(self.index)),
            requested=error.requested,
        )

    def plan_figures(self) -> PlanFigures | None:
        """Return what the planned allocator has served since it got its plan."""
        return pluggable.plan_figures(self.index)

    def take_library_workspace(self) -> None:
        """Let cuBLAS take the workspace that it keeps while there is no cache to take it from.

        In the middle of an iteration it would get a part of a large segment, and keep all of that
        from going back to the device before a plan is served. Raises OutOfMemoryError.
        """
        try:
            one = torch.ones(1, 1, device=self.device)
            torch.mm(one, one)
        except torch.OutOfMemoryError as error:
            raise self.explain(error) from None

    def reset_peaks(self) -> None:
        pluggable.reset_peaks(self.index)

    def peaks(self) -> MemoryPeaks:
        stats = pluggable.statistics(self.index)
        return MemoryPeaks(0, 0, 0) if stats is None else MemoryPeaks.of(stats)


class FallbackFinder:
    """Finds the operators of one iteration that the fallback serves, by the figures of the plan."""

    def __init__(self, memory: ServedMemory, operators: Sequence[str]) -> None:
        self._memory = memory
        self._operators = operators
        self._figures: list[PlanFigures] = []

    def step(self, k: int) -> None:
        """Look before operation `k`."""
        self._look()
        self._memory.step(k)

    def finish(self) -> list[Elsewhere]:
        """Return whose requests went elsewhere, those of most bytes first."""
        self._look()
        found: dict[str, Elsewhere] = {}
        for name, before, after in zip(
            self._operators, self._figures, self._figures[1:], strict=False
        ):
            requests = after.fallback.requests - before.fallback.requests
            if requests:
                known = found.get(name, Elsewhere(name, 0, 0))
                size = known.size + after.fallback.bytes - before.fallback.bytes
                found[name] = Elsewhere(name, known.requests + requests, size)
        return sorted(found.values(), key=lambda entry: -entry.size)

    def _look(self) -> None:
        figures = self._memory.plan_figures()
        if figures is not None:
            self._figures.append(figures)
