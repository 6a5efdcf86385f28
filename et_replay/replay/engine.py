"""A program in, its replay out: runs prepared operations over and over, and measures."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from et_replay import pluggable
from et_replay.errors import (
    EtReplayError,
    OutOfMemoryError,
    ReplayError,
    UsageError,
    first_line,
)
from et_replay.events import Action, AllocationEvents, MemoryHistory
from et_replay.planning import Plan, check_plan, lifetimes, plan_events
from et_replay.program.allocations import allocation_events
from et_replay.program.program import Program
from et_replay.program.requests import RecordedRequests
from et_replay.program.schedule import schedule
from et_replay.replay.coverage import coverage_of
from et_replay.replay.failure_state import history_at_failure
from et_replay.replay.imports import import_modules
from et_replay.replay.iteration import Iteration
from et_replay.replay.lead import Lead
from et_replay.replay.memory import DeviceMemory, MeasuredMemory, SimulatedMemory
from et_replay.replay.operation_clock import add_up, clock_for
from et_replay.replay.options import ReplayOptions
from et_replay.replay.pace import Pace
from et_replay.replay.prepare import Preparer
from et_replay.replay.recorded_requests import RequestRecorder
from et_replay.replay.recordings import with_recordings
from et_replay.replay.result import (
    Elsewhere,
    LiveStorage,
    ReplayResult,
)
from et_replay.replay.served_memory import FallbackFinder, ServedMemory
from et_replay.replay.target import Target, choose_target
from et_replay.replay.tensor_store import TensorStore
from et_replay.replay.workspaces import default_library_workspace
from et_replay.replay_modes import COMM
from et_replay.simulation import TORCH, PlanFigures, allocator_name
from et_replay.torch_settings import in_force
from et_replay.units import format_bytes

if TYPE_CHECKING:
    from et_replay.replay.communication.communicator import Communicator

Progress = Callable[[int, int], None]

_REHEARSED = (
    "Memory ran out in the iterations that run ahead of a plan, served by the caching allocator;"
    " --allocator stalloc:expandable_segments:True needs less there."
)


def replay(
    program: Program,
    options: ReplayOptions,
    progress: Progress | None = None,
    communicator: Communicator | None = None,
) -> ReplayResult:
    """Replay `program`; `progress` is told operations done and operations to do.

    Collectives are made by `communicator`; without one they are replaced by what they do to memory.

    Running out of memory is a result, not an error. Raises UsageError for options that cannot be
    had, ReplayError where `on_unsupported` is `fail` and something is, or where a GPU fails.
    """
    target = choose_target(options.device, program.device)
    served = None
    if not target.simulated:
        target.refuse_simulated({"--other-memory": options.other_memory > 0})
        # Before anything else can use CUDA.
        served = _served_memory(options, target)
    import_modules(options.imports)
    if communicator is not None:
        communicator.begin()
    try:
        settings = {} if target.device.type == "meta" else options.torch_settings
        with _without_gradients(communicator, target), in_force(settings) as job:
            run = _Replay(program, options, target, progress, served, communicator)
            result = run.result()
            return replace(result, torch_settings=job.changed, notes=(*result.notes, *job.notes()))
    except RuntimeError as error:
        if target.simulated:
            raise
        # A kernel's failed assertion, say: it shows anywhere, and no call works after it.
        reason = first_line(error)
        raise ReplayError(
            f"{target.device} failed: {reason}; with CUDA_LAUNCH_BLOCKING=1 in the environment it"
            " fails at the operation that is the cause."
        ) from error


def _without_gradients(
    communicator: Communicator | None, target: Target
) -> AbstractContextManager[object]:
    """Keep PyTorch from recording what a backward pass would need, at the lowest cost.

    That is inference mode, but gloo's threads, which are not in it, may not write to its tensors.
    """
    if communicator is None or not target.simulated:
        return torch.inference_mode()
    return torch.no_grad()


class _Replay:
    """One replay: the prepared operations, the tensors, the device's memory."""

    def __init__(
        self,
        program: Program,
        options: ReplayOptions,
        target: Target,
        progress: Progress | None,
        served: ServedMemory | None = None,
        communicator: Communicator | None = None,
    ) -> None:
        self._communicator = communicator
        self._program = program
        self._options = options
        self._target = target
        self._progress = progress or (lambda done, total: None)
        preparer = Preparer(
            program,
            target,
            options.on_unsupported,
            options.run_kernels,
            options.skips,
            communicator,
        )
        prepared = preparer.prepare(options.mode)
        self._steps = schedule(program, options.mode)
        self._contents = prepared.contents
        self._store = TensorStore(program, target, prepared.contents, options.seed)
        self._plan: Plan | None = None
        self._served = served
        self._memory: DeviceMemory = served or self._new_memory()
        self._iteration = Iteration(
            program, options, prepared, self._steps, self._store, self._memory, target.device
        )
        self._figures: PlanFigures | None = None
        self._elsewhere: Sequence[Elsewhere] = ()
        self._requests: RecordedRequests | None = None
        self._recorder = self._new_recorder()
        self._pace = Pace(self._iteration, target.device, in_a_row=communicator is not None)
        self._notes: list[str] = []
        self._further = options.further_iterations(target.device.type)

    def result(self) -> ReplayResult:
        """Run all iterations and gather what they showed."""
        try:
            result = self._measured()
            # What follows must not show in what was measured, so it comes last.
            if result.out_of_memory is None:
                result = self._with_operation_times(self._with_collective_times(result))
            return with_recordings(result, self._iteration, self._target.device, self._options)
        finally:
            self._memory.stop()

    def _measured(self) -> ReplayResult:
        failure: OutOfMemoryError | None = None
        try:
            self._run_iterations()
        except OutOfMemoryError as error:
            failure = _without_frames(error)
        return ReplayResult(
            trace=self._program.trace.source,
            device=str(self._target.device),
            simulated=self._target.simulated,
            mode=self._options.mode.value,
            window=self._program.window.name,
            node_ids=self._program.node_ids,
            device_memory=self._memory.capacity,
            other_memory=self._options.other_memory,
            library_workspace=self._options.library_workspace,
            coverage=coverage_of(
                self._program, self._iteration.operations, self._iteration.reached
            ),
            iteration_times=self._pace.times()[self._options.warmup :],
            memory=self._memory.peaks(),
            flushes=self._iteration.flushes,
            out_of_memory=failure,
            live=self._live() if failure else (),
            plan=self._plan,
            plan_figures=self._figures or self._memory.plan_figures(),
            elsewhere=self._elsewhere,
            requests=self._requests,
            torch_version=torch.__version__,
            imitated_version=self._options.imitated_version,
            allocator=self._allocator(),
            events=self._events(),
            at_failure=self._at_failure(failure) if failure else None,
            replay_mode=self._options.replay_mode,
            notes=self._all_notes(),
        )

    def _all_notes(self) -> tuple[str, ...]:
        return (
            *self._program.trace.notes,
            *self._program.notes,
            *self._contents.notes,
            *(self._communicator.notes() if self._communicator is not None else ()),
            *self._notes,
        )

    def _new_memory(self) -> DeviceMemory:
        capacity = self._options.device_memory
        if not self._target.simulated:
            settings = (self._options.allocator or "").partition(":")[2]
            return MeasuredMemory(self._target, capacity, settings)
        events = allocation_events(self._program, self._options.mode, self._steps)
        if self._target.device.type == "cpu":
            _check_host_memory(events, capacity)
        if self._options.planned:
            self._plan = _plan_for(events, self._options, self._program)
        return SimulatedMemory(
            self._program,
            events,
            self._steps,
            self._options.allocator_that_serves,
            self._options.simulated_memory,
            self._options.other_memory,
            self._options.library_workspace,
            self._plan,
            self._options.imitated_version,
        )

    def _new_recorder(self) -> RequestRecorder | None:
        wanted = self._options.record_requests or self._options.planned
        if self._served is None or not wanted:
            return None
        return RequestRecorder(self._program, self._served.index)

    def _allocator(self) -> str:
        if isinstance(self._memory, MeasuredMemory):
            return self._memory.configuration
        return self._options.allocator_that_serves

    def _events(self) -> AllocationEvents | None:
        memory = self._memory
        return memory.events() if isinstance(memory, SimulatedMemory) else None

    def _at_failure(self, failure: OutOfMemoryError) -> MemoryHistory | None:
        """Return the history of a real device's failure, and tell it what was requested."""
        state = self._memory.failure_state()
        if state is None:
            return None
        history = history_at_failure(self._program, state, self._store.addresses(), failure)
        failure.requested = int(history.events.size[0])
        return history

    def _run_iterations(self) -> None:
        self._memory.start()
        self._iteration.create_inputs(self._recorder)
        count = len(self._iteration.operations)
        measured = self._options.warmup + self._options.iterations
        total = measured + self._further
        if self._recorder is not None:
            self._rehearse(self._recorder)
        for iteration in range(measured):
            if iteration == self._options.warmup:
                self._memory.reset_peaks()
            self._pace.run(first=iteration == 0 and self._recorder is None)
            self._progress((iteration + 1) * count, total * count)
        if self._served is not None:
            self._find_fallbacks(self._served)

    def _rehearse(self, recorder: RequestRecorder) -> None:
        """Run two iterations that are recorded; after them a planned allocator serves a plan.

        A device is asked for more than a trace tells, such as scratch memory, and in the first
        iteration for other things than in those after it.
        """
        given = self._options.plan
        if given is not None:
            events = allocation_events(self._program, self._options.mode, self._steps)
            _check_plan(given, events, self._options, self._program)
        planned = self._served if self._options.planned else None
        try:
            if planned is not None and default_library_workspace(self._program):
                planned.take_library_workspace()
            for first in (True, False):
                self._iteration.recorded(recorder, first)
        except OutOfMemoryError:
            self._notes.append(_REHEARSED)
            raise
        self._requests = recorder.finish()
        if planned is not None:
            plan = planned.adopt(self._requests, given)
            self._plan = given or replace(plan, source=self._program.trace.source)

    def _find_fallbacks(self, memory: ServedMemory) -> None:
        """Run once more where a plan left requests to others, to say whose they were."""
        figures = memory.plan_figures()
        if self._plan is None or figures is None or not figures.fallback.requests:
            return
        self._figures = figures  # without what follows
        names = [operation.name for operation in self._iteration.operations]
        finder = FallbackFinder(memory, names)
        self._iteration.stepped(finder.step)
        self._elsewhere = finder.finish()

    def _with_collective_times(self, result: ReplayResult) -> ReplayResult:
        """Run further iterations, and take the time of each collective in them.

        All ranks run as many, or they would wait for each other.
        """
        communicator = self._communicator
        if communicator is None or not communicator.is_timed:
            return result
        only = self._options.replay_mode == COMM
        lead = Lead(self._iteration, self._target.device, only, communicator)
        times = [
            communicator.timed(lead, lambda: self._iteration.timed(first=False, idle=False))
            for _ in range(self._options.timed_iterations)
        ]
        return replace(result, collective_times=communicator.times(), timed_iterations=tuple(times))

    def _with_operation_times(self, result: ReplayResult) -> ReplayResult:
        """Run further iterations, and take the time of each operation in them."""
        if not self._further:
            return result
        count = len(self._iteration.operations)
        total = self._options.warmup + self._options.iterations + self._further
        clock = clock_for(self._target.device, count)
        iterations: list[list[int]] = []
        try:
            while len(iterations) < self._further:
                self._iteration.marked(clock.mark)
                clock.mark(count)
                iterations.append(clock.intervals())
                left = self._further - len(iterations)
                self._progress((total - left) * count, total * count)
        except (EtReplayError, RuntimeError) as error:  # what was measured before stands
            reason = first_line(error)
            note = f"The times of operations are missing, as taking them failed: {reason}."
            return replace(result, notes=(*result.notes, note))
        return replace(result, operation_times=add_up(self._program, iterations))

    def _live(self) -> list[LiveStorage]:
        """List the storages on the device, the largest first."""
        memory = self._memory
        indices = memory.live() if isinstance(memory, SimulatedMemory) else self._store.live()
        storages = [self._program.storages[index] for index in indices]
        return [
            LiveStorage(storage.size, storage.kind.value, storage.producer, storage.first_node_id)
            for storage in sorted(storages, key=lambda storage: -storage.size)
            if self._program.on_device(storage)
        ]


def _plan_for(events: AllocationEvents, options: ReplayOptions, program: Program) -> Plan:
    """Return the plan to serve: the one given, if it was made for these events, or a new one."""
    if options.plan is None:
        return replace(plan_events(events), source=program.trace.source)
    _check_plan(options.plan, events, options, program)
    return options.plan


def _check_plan(
    plan: Plan, events: AllocationEvents, options: ReplayOptions, program: Program
) -> None:
    source, window = program.trace.source, program.window.name
    check_plan(plan, lifetimes(events), source, options.mode.value, window)


def _served_memory(options: ReplayOptions, target: Target) -> ServedMemory | None:
    """Let an allocator of ours serve where one was asked for, else PyTorch's own."""
    name = allocator_name(options.allocator or "")
    if name == TORCH or not (name or options.planned):
        if pluggable.is_installed():
            raise UsageError(
                "PyTorch's own allocator cannot serve where another has been installed: replay with"
                " it in a process of its own."
            )
        return None
    return ServedMemory(target, options.allocator_that_serves, options.device_memory)


def _check_host_memory(events: AllocationEvents, capacity: int | None) -> None:
    """Refuse what this machine cannot hold: its kernel would end the process without a word."""
    signed = np.where(events.action == Action.ALLOC, events.size, -events.size)
    needed = int(signed.cumsum().max(initial=0))
    if capacity is not None:
        needed = min(needed, capacity)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ReplayError(
            f"The replay needs {format_bytes(needed)} on cpu, and this machine has"
            f" {format_bytes(there)}; --device meta needs none."
        )


def _without_frames(error: OutOfMemoryError) -> OutOfMemoryError:
    """Drop what would keep the frames that failed alive, and with them every tensor."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
