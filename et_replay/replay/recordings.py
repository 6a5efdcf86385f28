"""One more iteration of a replay in, a file of PyTorch's profiler or observer about it out."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

from et_replay.errors import EtReplayError, ReplayError, first_line
from et_replay.replay.iteration import Iteration
from et_replay.replay.observers import observed, silenced
from et_replay.replay.options import ReplayOptions
from et_replay.replay.prepared import PreparedCall, PreparedOperation
from et_replay.replay.result import ReplayResult

_STEP = "ProfilerStep#0"
"""The mark of the recorded iteration: a window, for what reads execution traces."""


def with_recordings(
    result: ReplayResult, iteration: Iteration, device: torch.device, options: ReplayOptions
) -> ReplayResult:
    """Run a further iteration for each file that is to be written about one.

    Returns `result`, with a note about each that could not be written.
    """
    wanted = (
        ("profile", options.profile, record_profile),
        ("execution trace", options.execution_trace, record_execution_trace),
    )
    for name, path, record in wanted:
        if path is None:
            continue
        reason = "memory ran out"
        if result.out_of_memory is None:
            try:
                record(iteration, device, path)
                continue
            except (EtReplayError, RuntimeError, OSError) as error:  # what was measured stands
                reason = first_line(error)
        note = f"There is no {name}, as the iteration for it failed: {reason}."
        result = replace(result, notes=(*result.notes, note))
    return result


def record_profile(iteration: Iteration, device: torch.device, path: Path) -> None:
    """Write a Kineto trace: kernels, memory, and a mark with node id and name per operation."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True, profile_memory=True) as profiler:
        with _Marks(iteration.operations) as marks:
            iteration.marked(marks.begin)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    profiler.export_chrome_trace(str(path))


def record_execution_trace(iteration: Iteration, device: torch.device, path: Path) -> None:
    """Write an execution trace of the calls of the replay, without what makes up values for them.

    So what stands in for a call is not in it: what the call would have returned is an input there.

    Between the calls PyTorch tells its observers nothing. Raises ReplayError where another observer
    of execution traces is at work.
    """
    plain = path.with_name(f"{path.name}.plain")
    observer = ExecutionTraceObserver()
    try:
        observer.register_callback(str(plain))
        if not observer.is_registered:
            raise ReplayError("Another execution trace observer runs in this process.")
        observer.start()
        with record_function(_STEP), _observed(iteration.operations):
            iteration.marked(lambda k: None)
        observer.unregister_callback()
        _compress(plain, path)
    finally:
        observer.unregister_callback()
        plain.unlink(missing_ok=True)


class _Marks:
    """A mark around each operation, which lasts until that of the next one begins."""

    def __init__(self, operations: Sequence[PreparedOperation]) -> None:
        self._names = [f"node {operation.node_id}: {operation.name}" for operation in operations]
        self._open: record_function | None = None

    def __enter__(self) -> _Marks:
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()

    def begin(self, k: int) -> None:
        """Begin the mark of operation `k`."""
        self._close()
        self._open = record_function(self._names[k])
        self._open.__enter__()  # type: ignore[no-untyped-call]

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


@contextmanager
def _observed(operations: Sequence[PreparedOperation]) -> Iterator[None]:
    """Let observers see every call of an operator or a collective, and nothing else."""
    wrapped: list[tuple[PreparedCall, Callable[..., Any], Callable[..., Any]]] = []
    for operation in operations:
        for call in operation.calls:
            if call.made_from is not None:
                own = call.function
                call.function = partial(observed, own)
                wrapped.append((call, own, call.function))
    try:
        with silenced():
            yield
    finally:
        for call, own, wrapper in wrapped:
            if call.function is wrapper:  # else it failed, and something stands in for it
                call.function = own


def _compress(plain: Path, path: Path) -> None:
    """Put a file in its place, compressed if its name says so."""
    if path.suffix != ".gz":
        plain.replace(path)
        return
    with plain.open("rb") as source, gzip.open(path, "wb") as target:
        shutil.copyfileobj(source, target)
