"""Prepared operations, their tensors and the device's memory in; iterations that run, out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from et_replay.errors import EtReplayError, OutOfMemoryError
from et_replay.program.program import Program
from et_replay.program.schedule import Step
from et_replay.replay.device_events import nanoseconds_between, timing_event
from et_replay.replay.first_run import FirstRun
from et_replay.replay.memory import DeviceMemory
from et_replay.replay.options import ReplayOptions
from et_replay.replay.prepare import Prepared
from et_replay.replay.prepared import PreparedCall, PreparedOperation, bind_results
from et_replay.replay.recorded_requests import RequestRecorder, Runner
from et_replay.replay.result import Flushes
from et_replay.replay.room import Room
from et_replay.replay.tensor_store import TensorStore

Stepper = Callable[[int], None]
"""Is told the number of each operation before anything is done for it."""

Progress = Callable[[int, int], None]
"""Is told how many operations are done, and how many there are in all iterations."""


class Iteration:
    """Runs all operations once, over and over; of each run it knows `flushes`.

    `reached` counts the operations that have run at least once.
    """

    def __init__(
        self,
        program: Program,
        options: ReplayOptions,
        prepared: Prepared,
        steps: list[Step],
        store: TensorStore,
        memory: DeviceMemory,
        device: torch.device,
    ) -> None:
        self.operations = prepared.operations
        self.flushes = Flushes()
        self.reached = 0
        self._program = program
        self._permanent = prepared.permanent
        self._steps = steps
        self._store = store
        self._memory = memory
        self._device = device
        self._seed = options.seed
        self._threshold = options.device_memory_threshold
        self._first = FirstRun(store, options.on_unsupported, steady=self._threshold == 1)

    def create_inputs(self, recorder: RequestRecorder | None) -> None:
        """Create what is there before the first iteration; raises OutOfMemoryError."""
        try:
            for slot in self._permanent:
                self._store.create(slot)
            if recorder is not None:
                made = [self._store.slots[slot] for slot in self._permanent]
                recorder.note_tensors(self._permanent, made)
        except torch.OutOfMemoryError as error:
            raise self._memory.explain(error) from None

    def timed(self, first: bool, idle: bool = True) -> int:
        """Run once and return the nanoseconds that it took, the device's work included.

        It begins on an `idle` device, or on one when that has done what it was given before.
        """
        if self._device.type != "cuda":
            self._begin()
            start = time.perf_counter_ns()
            self._run_all(first)
            return time.perf_counter_ns() - start
        before, after = timing_event(), timing_event()
        stream = torch.cuda.current_stream(self._device)
        self._begin()
        if idle:
            torch.cuda.synchronize(self._device)
        before.record(stream)
        self._run_all(first)
        after.record(stream)
        torch.cuda.synchronize(self._device)
        return nanoseconds_between(before, after)

    def run(self, first: bool) -> None:
        """Run once, without waiting for the device."""
        self._begin()
        self._run_all(first)

    def marked(self, mark: Stepper) -> None:
        """Run once, with `mark` told of every operation."""
        self._begin()
        self._run_all(first=False, mark=mark)

    def recorded(self, recorder: RequestRecorder, first: bool) -> None:
        """Run once, with `recorder` shown what operators ask for."""
        torch.manual_seed(self._seed)
        run = self._first.run if first else self._run
        self._run_each(recorder.running(run, self._store.slots), recorder.begin_operation)

    def stepped(self, step: Stepper) -> None:
        """Run once, with `step` in the place of what memory asks for."""
        torch.manual_seed(self._seed)
        self._run_each(self._run, step)

    def _begin(self) -> None:
        self._memory.begin_iteration()
        torch.manual_seed(self._seed)

    def _run_all(self, first: bool, mark: Stepper | None = None) -> None:
        """Run every operation, with what its memory asks for before each."""
        room = Room(self._program, self._steps, self._memory, self._store, self._threshold)
        step: Stepper | None = self._memory.step if self._memory.steps else None
        if self._threshold < 1:
            step = room.step
        if mark is not None:
            step = _both(mark, step)
        try:
            self._run_each(self._first.run if first else self._run, step)
        finally:
            self.flushes = room.flushes

    def _run_each(self, run: Runner, step: Stepper | None) -> None:
        """Run every operation; this loop is all that stands between two operators."""
        slots = self._store.slots
        k, operation = 0, None
        try:
            for k, operation in enumerate(self.operations):
                if step is not None:
                    step(k)
                for call in operation.calls:
                    try:
                        result = run(operation, call)
                    except (EtReplayError, torch.OutOfMemoryError):
                        raise
                    except Exception as error:  # whatever an operator raises becomes a reason
                        self._first.replace(operation, call, error)
                        continue
                    if call.output is not None and type(result) is torch.Tensor:
                        slots[call.output] = result
                    elif result is not None:
                        bind_results(slots, call.outputs, result)
                for slot in operation.cleared:
                    slots[slot] = None
            self.reached = len(self.operations)
        except (OutOfMemoryError, torch.OutOfMemoryError) as error:
            self.reached = max(self.reached, k)
            raise _located(error, operation, self._memory) from None

    def _run(self, operation: PreparedOperation, call: PreparedCall) -> Any:
        """Run a call that has run before."""
        slots = self._store.slots
        for slot in call.inputs:
            if slots[slot] is None:
                self._store.create(slot, slot not in call.overwritten)
        return call.function(*call.fetch(slots)) if call.plain else call.run(slots)


def _both(one: Stepper, other: Stepper | None) -> Stepper:
    """Make the call that does both, one after the other."""

    def call(k: int) -> None:
        one(k)
        if other is not None:
            other(k)

    return call


def _located(
    error: OutOfMemoryError | torch.OutOfMemoryError,
    operation: PreparedOperation | None,
    memory: DeviceMemory,
) -> OutOfMemoryError:
    """Say at which operation memory ran out."""
    if not isinstance(error, OutOfMemoryError):
        error = memory.explain(error)
    if operation is not None:
        error.node_id, error.operator = operation.node_id, operation.name
    return error
