"""`et_replay compare`: memory histories through several allocators, without a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import joblib

from et_replay.commands import options
from et_replay.commands.output import check_destination, progress_bar, warn, write_result
from et_replay.comparison import DEFAULT_DEVICE_MEMORY, compare, history_of, reproduce
from et_replay.errors import OutOfMemoryError, TraceError, UsageError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_recording
from et_replay.program import Mode, build_program, select_window
from et_replay.report.compare import InputReport, compare_objects, compare_text
from et_replay.report.document import document
from et_replay.report.snapshot import write_snapshot
from et_replay.simulation import ALLOCATORS, Simulator

_DEFAULT = ("native", "expandable", "direct", "ideal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a comparison."""
    options.add_inputs(parser)
    names = "; ".join(f"{name}: {what}" for name, what in ALLOCATORS.items())
    parser.add_argument(
        "--allocator",
        action="append",
        metavar="NAME[:SETTINGS]",
        help=f"an allocator, repeatable, with settings in PYTORCH_ALLOC_CONF's syntax ({names}; "
        f"default: {', '.join(_DEFAULT)})",
    )
    parser.add_argument(
        "--tensor-allocation-mode",
        choices=(Mode.PRE_ALLOCATE.value, Mode.LAZY_ALLOCATE.value),
        default=Mode.PRE_ALLOCATE.value,
        help="for execution traces: whose lifetimes the events have (default: pre)",
    )
    parser.add_argument(
        "--torch-version",
        metavar="X.Y",
        help="whose allocator to imitate, 2.7 to 2.14 (default: what the file tells, else newest)",
    )
    parser.add_argument(
        "--device-memory",
        type=options.size,
        metavar="SIZE",
        help="capacity of the device, such as 24GiB (default: what the file proves, else 80GiB)",
    )
    parser.add_argument(
        "--iterations",
        type=options.integer(1),
        default=1,
        metavar="N",
        help="times to run the events without a reset, to see drift (default: 1)",
    )
    _add_execution(parser)
    options.add_output(parser)


def _add_execution(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="write what the one allocator did with the one input as a memory snapshot, for "
        "PyTorch's memory viewer",
    )


@dataclass(frozen=True)
class _Task:
    """What a worker needs to know to make the report of one input."""

    path: str
    allocators: tuple[str, ...]
    mode: Mode
    window: str | None
    torch_version: str | None
    device_memory: int | None
    device_index: int | None
    iterations: int
    strict: bool


def run(arguments: argparse.Namespace) -> int:
    """Compare allocators offline: peak memory, fragmentation and failures for the same events."""
    allocators = tuple(dict.fromkeys(arguments.allocator or _DEFAULT))
    for allocator in allocators:
        Simulator(allocator, torch_version=arguments.torch_version)  # refuses what there is not
    paths = options.expand(arguments.trace)
    for destination in (arguments.json, arguments.snapshot):
        for path in paths:
            check_destination(destination, arguments.force, path)
    if arguments.snapshot and (len(paths) > 1 or len(allocators) > 1):
        raise UsageError("--snapshot needs one --trace and one --allocator.")
    tasks = [
        _Task(
            path,
            allocators,
            Mode(arguments.tensor_allocation_mode),
            arguments.window,
            arguments.torch_version,
            arguments.device_memory,
            arguments.device_index,
            arguments.iterations,
            arguments.strict,
        )
        for path in paths
    ]
    reports = _reports(tasks, arguments)
    for report in reports:
        warn(report.notes, arguments.quiet)
    if arguments.snapshot:
        _write_snapshot(tasks[0], reports[0], Path(arguments.snapshot))
    write_result(
        compare_text(reports),
        document("compare", compare_objects(reports)),
        arguments.json,
        arguments.force,
    )
    failed = any(row.out_of_memory for report in reports for row in report.rows)
    return OutOfMemoryError.exit_code if failed else 0


def _reports(tasks: list[_Task], arguments: argparse.Namespace) -> list[InputReport]:
    if len(tasks) == 1:
        return [_report(tasks[0])]
    jobs = arguments.jobs or -1
    try:
        with joblib.parallel_config(backend=arguments.backend, n_jobs=jobs):
            results: Iterable[InputReport] = joblib.Parallel(return_as="generator")(
                joblib.delayed(_report)(task) for task in tasks
            )
            with progress_bar(arguments.quiet) as progress:
                reports = []
                for report in results:
                    reports.append(report)
                    progress(len(reports), len(tasks))
    except ValueError as error:
        raise UsageError(f"--backend {arguments.backend}: {error}") from error
    return reports


def _report(task: _Task) -> InputReport:
    """Read one input and run all allocators over it; runs in a worker where there are several."""
    history = _history(task)
    check = reproduce(history, task.torch_version)
    version = task.torch_version or (check.torch_version if check is not None else None)
    rows = [
        compare(
            history,
            allocator,
            torch_version=version,
            device_memory=task.device_memory,
            iterations=task.iterations,
        )
        for allocator in task.allocators
    ]
    return InputReport(
        input=history.source,
        kind=history.kind,
        events=len(history.events),
        device_memory=task.device_memory or history.device_memory or DEFAULT_DEVICE_MEMORY,
        iterations=task.iterations,
        addresses=check,
        rows=rows,
        notes=history.notes,
    )


def _history(task: _Task) -> MemoryHistory:
    recording = open_recording(task.path, device=task.device_index, strict=task.strict)
    if isinstance(recording, ExecutionTrace):
        program = build_program(recording, select_window(recording, task.window))
        return history_of(program, task.mode)
    if len(recording.events) == 0 and not recording.segments:
        raise TraceError(f"{recording.source} holds no allocation, so there is nothing to compare.")
    return recording


def _write_snapshot(task: _Task, report: InputReport, path: Path) -> None:
    history, row = _history(task), report.rows[0]
    simulator = Simulator(
        row.allocator,
        report.device_memory,
        torch_version=row.torch_version,
        start=history.segments if row.allocator == "native" else (),
        record_trace=True,
    )
    simulator.run(history.events, keep_going=True)
    write_snapshot(path, simulator.segments(), simulator.trace(), row.allocator.partition(":")[2])
