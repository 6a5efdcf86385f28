"""A program in, its replay out: runs prepared operations over and over, and measures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from et_replay.errors import OutOfMemoryError, ReplayError, first_line
from et_replay.events import AllocationEvents, MemoryHistory
from et_replay.planning import Plan
from et_replay.program.program import Program
from et_replay.program.schedule import schedule
from et_replay.replay.coverage import coverage_of
from et_replay.replay.device_memory import memory_for, served_memory
from et_replay.replay.failure_state import history_at_failure
from et_replay.replay.further_iterations import with_collective_times, with_operation_times
from et_replay.replay.imports import import_modules
from et_replay.replay.iteration import Iteration, Progress
from et_replay.replay.memory import DeviceMemory, MeasuredMemory, SimulatedMemory
from et_replay.replay.options import ReplayOptions
from et_replay.replay.pace import Pace
from et_replay.replay.prepare import Preparer
from et_replay.replay.recordings import with_recordings
from et_replay.replay.rehearsal import Rehearsal
from et_replay.replay.result import LiveStorage, ReplayResult
from et_replay.replay.served_memory import ServedMemory
from et_replay.replay.target import Target, choose_target
from et_replay.replay.tensor_store import TensorStore
from et_replay.torch_settings import in_force

if TYPE_CHECKING:
    from et_replay.replay.communication.communicator import Communicator


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
        served = served_memory(options, target)
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
        steps = schedule(program, options.mode)
        self._contents = prepared.contents
        self._store = TensorStore(program, target, prepared.contents, options.seed)
        self._memory: DeviceMemory = served or memory_for(program, options, target, steps)
        self._iteration = Iteration(
            program, options, prepared, steps, self._store, self._memory, target.device
        )
        self._rehearsal = Rehearsal(program, options, steps, self._iteration, served)
        self._pace = Pace(self._iteration, target.device, in_a_row=communicator is not None)

    def result(self) -> ReplayResult:
        """Run all iterations and gather what they showed."""
        try:
            result = self._measured()
            # What follows must not show in what was measured, so it comes last.
            if result.out_of_memory is None:
                result = self._with_times(result)
            return with_recordings(result, self._iteration, self._target.device, self._options)
        finally:
            self._memory.stop()

    def _with_times(self, result: ReplayResult) -> ReplayResult:
        iteration, device, options = self._iteration, self._target.device, self._options
        result = with_collective_times(result, iteration, device, options, self._communicator)
        progress = self._progress
        return with_operation_times(result, self._program, iteration, device, options, progress)

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
            plan=self._plan(),
            plan_figures=self._rehearsal.figures or self._memory.plan_figures(),
            elsewhere=self._rehearsal.elsewhere,
            requests=self._rehearsal.requests,
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
            *self._rehearsal.notes,
        )

    def _allocator(self) -> str:
        if isinstance(self._memory, MeasuredMemory):
            return self._memory.configuration
        return self._options.allocator_that_serves

    def _plan(self) -> Plan | None:
        memory = self._memory
        return memory.plan if isinstance(memory, SimulatedMemory) else self._rehearsal.plan

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
        recorder = self._rehearsal.recorder
        self._iteration.create_inputs(recorder)
        count = len(self._iteration.operations)
        measured = self._options.warmup + self._options.iterations
        total = measured + self._options.further_iterations(self._target.device.type)
        self._rehearsal.run()
        for iteration in range(measured):
            if iteration == self._options.warmup:
                self._memory.reset_peaks()
            self._pace.run(first=iteration == 0 and recorder is None)
            self._progress((iteration + 1) * count, total * count)
        self._rehearsal.find_fallbacks()

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


def _without_frames(error: OutOfMemoryError) -> OutOfMemoryError:
    """Drop what would keep the frames that failed alive, and with them every tensor."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
