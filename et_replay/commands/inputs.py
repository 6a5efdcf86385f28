"""Inputs as the user names them in, their memory histories, worked on side by side, out."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from et_replay.captured_files import PLAN
from et_replay.commands import argument_types, options
from et_replay.commands.facts_of_run import version_of, with_gpu
from et_replay.commands.input_files import expand, file_names, is_folder
from et_replay.commands.output import STDOUT, progress_bar
from et_replay.errors import PlanError, TraceError, UsageError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import BufferTable, buffer_history, kineto, open_plannable, snapshot
from et_replay.formats.captured_endings import shortcoming
from et_replay.formats.captured_run import CapturedRun
from et_replay.parallel import in_parallel
from et_replay.planning import Plan, check_plan, lifetimes, marked_iterations, table_lifetimes
from et_replay.planning.plan_folder import plan_in, plans_in
from et_replay.program import JOB, Mode, Window, build_program, history_of, select_window
from et_replay.simulation import Simulator

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_SUFFIXES = {
    *(".json", ".csv", ".pickle", ".pkl", ".txt", ".log", ".gz", ".xz", ".zst"),
    *(".et", ".snapshot"),  # of a rank's files in a captured run, which share one plan
}


_FOR_TRACES = ("window", "subgraph", "tensor_allocation_mode")
_ONE_DEVICE = "only memory snapshots and Kineto traces are of several devices"
_OF_DEVICES = (snapshot.KIND, kineto.KIND)


@dataclass(frozen=True)
class Recording:
    """What an input holds; of an execution trace, the mode and the window with which it was read.

    A plan is made from what it holds, and belongs to that. `begins` are the ticks of its events at
    which iterations but the first begin, where that is recorded.
    """

    content: MemoryHistory | BufferTable
    mode: str = ""
    window: str = ""
    begins: tuple[int, ...] = ()

    def history(self) -> MemoryHistory:
        """Return its events; raises TraceError where it holds nothing to work on."""
        if isinstance(self.content, MemoryHistory):
            return self.content
        return _not_empty(buffer_history(self.content))

    def check(self, plan: Plan) -> None:
        """Raise PlanError if the plan was not made from it."""
        if isinstance(self.content, BufferTable):
            lives = table_lifetimes(self.content.buffers, plan.iteration)
        else:
            lives = lifetimes(self.content.events, self.content.segments)
        check_plan(plan, lives, self.content.source, self.mode, self.window)


@dataclass(frozen=True)
class Input:
    """A file and how to read it; `mode` and `window` are for execution traces.

    They are None where the user leaves them open: those of `plan` count then, or the defaults.
    With `job` the events of a trace are those of the job itself, whatever the mode. `run` is what
    the process told that it is of, in a captured run; `rank` is that of a job of several. `unused`
    are sentences on options that mean nothing for memory histories.
    """

    path: str
    mode: Mode | None
    default_mode: Mode
    window: str | None
    device_index: int | None
    strict: bool
    plan: Plan | None = None
    job: bool = False
    run: CapturedRun | None = None
    rank: int | None = None
    unused: tuple[str, ...] = ()

    def for_plan(self, plan: Plan) -> Input:
        """Read what the user leaves open as `plan` was read."""
        if plan.mode == JOB:
            return replace(self, job=self.mode is None, plan=plan)
        default = Mode(plan.mode) if plan.mode else self.default_mode
        return replace(self, default_mode=default, plan=plan)

    def version(self, asked: str | None) -> str | None:
        """Return whose allocator to imitate, None where neither user nor captured run says."""
        return version_of(self.run, asked)

    def read(self) -> Recording:
        """Read it; raises TraceError where it holds nothing to work on."""
        recording = self._read()
        content = recording.content
        if isinstance(content, MemoryHistory):
            content = with_gpu(content, self.run)
        unused = () if recording.mode else self.unused
        kind = content.kind if isinstance(content, MemoryHistory) else ""
        if self.device_index is not None and kind not in _OF_DEVICES:
            unused = (*unused, f"--device-index means nothing for {self.path}: {_ONE_DEVICE}.")
        return replace(recording, content=replace(content, notes=(*content.notes, *unused)))

    def _read(self) -> Recording:
        found = open_plannable(self.path, device=self.device_index, strict=self.strict)
        if isinstance(found, BufferTable):
            if not found.names:
                raise _nothing_in(found)
            return Recording(found)
        if isinstance(found, MemoryHistory):
            marks = () if self.run is None else self.run.marks
            return Recording(_not_empty(found), begins=marked_iterations(found, marks))
        self._check_whole()
        window, mode = self._window(found), self.mode or self.default_mode
        program = build_program(found, window)
        if self.job:
            history = history_of(program, None)
            count = max(1, len(program.operations))
            begins = tuple((history.events.steps[count:-1:count] + 1).tolist())
            return Recording(history, JOB, window.name, begins)
        return Recording(history_of(program, mode), mode.value, window.name)

    def _check_whole(self) -> None:
        """Raise TraceError for the trace of a captured run without one whole iteration."""
        if self.run is None or self.window is not None:
            return
        if not any(iteration.recorded for iteration in self.run.iterations):
            lack = shortcoming(self.run) or "none was recorded."
            raise TraceError(
                f"{self.path} holds no whole iteration: {lack.rstrip('.')}; --window all takes what"
                " there is of one."
            )

    def history(self) -> MemoryHistory:
        """Read it as events; raises TraceError where it holds nothing to work on."""
        return self.read().history()

    def _window(self, trace: ExecutionTrace) -> Window:
        if self.window is None and self.plan is not None and self.plan.window:
            try:
                return select_window(trace, self.plan.window)
            except UsageError:  # another trace, which the comparison with the plan will tell
                pass
        return select_window(trace, self.window)


def _not_empty(history: MemoryHistory) -> MemoryHistory:
    if len(history.events) == 0 and not history.segments:
        raise _nothing_in(history)
    return history


def _nothing_in(content: MemoryHistory | BufferTable) -> TraceError:
    """Say so, and what was noted about it, as that tells why."""
    complaint = f"{content.source} holds no allocation, so there is nothing to do."
    return TraceError(" ".join([complaint, *content.notes]))


def add_inputs(
    parser: argparse.ArgumentParser, *, required: bool = True, several: bool = True
) -> None:
    """Add the options that say which inputs to read, and of several how to share out the work."""
    options.add_inputs(parser, required=required)
    parser.add_argument(
        "--device-index",
        type=argument_types.integer(0),
        metavar="N",
        help="for snapshots of several devices: which one (default: that with most events)",
    )
    if several:
        options.add_parallel(parser)


def inputs_of(arguments: argparse.Namespace, default_mode: Mode) -> list[Input]:
    """List the inputs that the options of `add_inputs` name, folders expanded."""
    mode = arguments.tensor_allocation_mode
    return [
        Input(
            path,
            None if mode in (None, JOB) else Mode(mode),
            default_mode,
            options.window_of(arguments),
            arguments.device_index,
            arguments.strict,
            job=mode == JOB or (mode is None and run is not None),
            run=run,
            rank=rank,
            unused=tuple(options.meaningless(arguments, _FOR_TRACES, options.FOR_TRACES)),
        )
        for path, run, rank in expand(arguments.trace)
    ]


def plan_name(path: str) -> str:
    """Name the plan of an input in a folder of plans: rank-0.plan.json for a rank-0.json.gz."""
    name = Path("stdin" if path == STDOUT else path)
    while name.suffix.lower() in _SUFFIXES:
        name = name.with_suffix("")
    return f"{name.name}.{PLAN}"


def plan_path(plan: str, path: str) -> str:
    """Return the plan of an input: the file itself, or in a folder of plans its own.

    Raises PlanError where the folder has none of it.
    """
    if not is_folder(Path(plan)):
        return plan
    file = plan_in(plan, plan_name(path))
    if not file.is_file():
        raise PlanError(
            f"The folder {plan} holds no {file.name}, which et_replay plan writes for {path}; it"
            f" holds {file_names(plans_in(plan))}."
        )
    return str(file)


def add_allocators(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option that names allocators, as `allocators_of` reads it."""
    parser.add_argument(
        "--allocator",
        action="append",
        metavar="NAME[:SETTINGS]",
        help=f"an allocator, repeatable, as et_replay compare takes it (default: {default})",
    )


def allocators_of(arguments: argparse.Namespace, default: Sequence[str]) -> tuple[str, ...]:
    """List the allocators that are asked for, each once; raises UsageError for what is none."""
    allocators = tuple(dict.fromkeys(arguments.allocator or default))
    for allocator in allocators:
        Simulator(allocator, torch_version=arguments.torch_version)
    return allocators


def add_job_mode(parser: argparse.ArgumentParser) -> None:
    """Add the option that says whose lifetimes the events of an execution trace have."""
    parser.add_argument(
        "--tensor-allocation-mode",
        choices=(JOB, *(mode.value for mode in Mode)),
        default=JOB,
        help="for execution traces: the job as it was, from its first iteration on and with the "
        "memory of libraries, or a replay's lifetimes (default: job)",
    )


def work_on(
    tasks: Sequence[_Task], work: Callable[[_Task], _Result], arguments: argparse.Namespace
) -> list[_Result]:
    """Do `work` for every task, several in parallel processes; return the results in order."""
    if len(tasks) == 1:
        return [work(tasks[0])]
    pending = in_parallel(work, ((task,) for task in tasks), arguments.jobs, arguments.backend)
    with progress_bar(arguments.quiet, unit="inputs") as progress:
        results = []
        for result in pending:
            results.append(result)
            progress(len(results), len(tasks))
    return results
