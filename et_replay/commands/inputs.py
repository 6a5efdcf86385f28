"""Inputs as the user names them in, their memory histories, worked on side by side, out."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import joblib

from et_replay.commands import options
from et_replay.commands.output import progress_bar
from et_replay.comparison import history_of
from et_replay.errors import TraceError, UsageError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_recording
from et_replay.program import Mode, build_program, select_window

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Input:
    """A file and how to read it; `mode` and `window` are for execution traces."""

    path: str
    mode: Mode
    window: str | None
    device_index: int | None
    strict: bool

    def history(self) -> MemoryHistory:
        """Read it; raises TraceError where it holds nothing to work on."""
        recording = open_recording(self.path, device=self.device_index, strict=self.strict)
        if isinstance(recording, ExecutionTrace):
            program = build_program(recording, select_window(recording, self.window))
            return history_of(program, self.mode)
        if len(recording.events) == 0 and not recording.segments:
            raise TraceError(f"{recording.source} holds no allocation, so there is nothing to do.")
        return recording


def add_inputs(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the options that say which inputs to read, and how to share out the work on them."""
    options.add_inputs(parser, required=required)
    parser.add_argument(
        "--device-index",
        type=options.integer(0),
        metavar="N",
        help="for snapshots of several devices: which one (default: that with most events)",
    )
    parser.add_argument(
        "--jobs",
        type=options.integer(1),
        metavar="N",
        help="inputs to work on at a time (default: one a core)",
    )
    parser.add_argument(
        "--backend",
        default="loky",
        metavar="NAME",
        help="joblib backend that runs them: loky, or a registered one such as dask or ray",
    )


def inputs_of(arguments: argparse.Namespace) -> list[Input]:
    """List the inputs that the options of `add_inputs` name, folders expanded."""
    return [
        Input(
            path,
            Mode(arguments.tensor_allocation_mode),
            arguments.window,
            arguments.device_index,
            arguments.strict,
        )
        for path in options.expand(arguments.trace)
    ]


def work_on(
    tasks: Sequence[_Task], work: Callable[[_Task], _Result], arguments: argparse.Namespace
) -> list[_Result]:
    """Do `work` for every task, several in parallel processes; return the results in order."""
    if len(tasks) == 1:
        return [work(tasks[0])]
    try:
        with joblib.parallel_config(backend=arguments.backend, n_jobs=arguments.jobs or -1):
            pending: Iterable[_Result] = joblib.Parallel(return_as="generator")(
                joblib.delayed(work)(task) for task in tasks
            )
            with progress_bar(arguments.quiet, unit="inputs") as progress:
                results = []
                for result in pending:
                    results.append(result)
                    progress(len(results), len(tasks))
    except ValueError as error:
        raise UsageError(f"--backend {arguments.backend}: {error}") from error
    return results
