"""`et_replay compare`: memory histories through several allocators, without a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from et_replay.commands import argument_types, options
from et_replay.commands.input_files import expand, is_folder
from et_replay.commands.inputs import (
    Input,
    add_inputs,
    allocators_of,
    inputs_of,
    plan_path,
    work_on,
)
from et_replay.commands.needs_torch import needs_torch
from et_replay.commands.output import (
    check_destination,
    check_distinct,
    warn,
    write_result,
    write_whole,
)
from et_replay.commands.pages import maps_of, snapshot_of, write_page
from et_replay.comparison import compare, version_to_imitate
from et_replay.errors import OutOfMemoryError, PlanError, UsageError
from et_replay.planning import Plan, read_plan
from et_replay.program import Mode
from et_replay.report.compare import InputReport, compare_objects, compare_text
from et_replay.report.document import document
from et_replay.serving import capacity_for, share_of, with_known_settings
from et_replay.simulation import ALLOCATORS, PLANNED, allocator_name

_DEFAULT = ("native", "expandable", "stalloc", "direct", "ideal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a comparison."""
    add_inputs(parser)
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
        choices=[mode.value for mode in Mode],
        help="for execution traces: whose lifetimes the events have; those of stalloc are those of "
        "lazy (default: those that --plan was made with, else pre)",
    )
    parser.add_argument(
        "--device",
        type=argument_types.device,
        metavar="cuda[:N]",
        help="for execution traces: replay them on this device under each allocator, in a process "
        "of its own, and show what was measured beside the simulation; torch is PyTorch's own "
        "allocator there (default: simulate, without a GPU)",
    )
    options.add_run_kernels(parser)
    options.add_imports(parser)
    options.add_torch_version(parser)
    options.add_device_memory(parser)
    options.add_memory_fraction(parser)
    parser.add_argument(
        "--iterations",
        type=argument_types.integer(1),
        metavar="N",
        help="times to run the events without a reset, to see drift (default: 1), or with --device "
        "iterations to measure (default: 10)",
    )
    _add_files(parser)
    options.add_page(parser)
    options.add_output(parser, "--json and --snapshot")


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--snapshot",
        type=argument_types.path,
        metavar="FILE",
        help="write what the one allocator did with the one input as a memory snapshot, for "
        "PyTorch's memory viewer",
    )
    parser.add_argument(
        "--plan",
        type=argument_types.path,
        metavar="FILE",
        help="the plan that stalloc serves, from et_replay plan; of a job's ranks the "
        "folder with the plan of each (default: one made for the input)",
    )


@dataclass(frozen=True)
class _Task:
    """What a worker needs to know to make the report of one input."""

    input: Input
    allocators: tuple[str, ...]
    torch_version: str | None
    device_memory: int | None
    memory_fraction: float | None
    iterations: int
    plan: Plan | None
    keep_history: bool


def run(arguments: argparse.Namespace) -> int:
    """Compare allocators offline: peak memory, fragmentation and failures for the same events."""
    if arguments.device is not None:
        return _on_device(arguments)
    allocators = allocators_of(arguments, _DEFAULT)
    inputs = inputs_of(arguments, Mode.PRE_ALLOCATE)
    _check_destinations(arguments, inputs)
    _check_options(arguments, inputs, allocators)
    tasks = [
        _Task(
            source if plan is None else source.for_plan(plan),
            allocators,
            source.version(arguments.torch_version),
            arguments.device_memory,
            arguments.memory_fraction,
            arguments.iterations or 1,
            plan,
            keep_history=bool(arguments.page or arguments.snapshot),
        )
        for source, plan in zip(inputs, _plans(arguments.plan, inputs), strict=True)
    ]
    reports = work_on(tasks, _report, arguments)
    for report in reports:
        where = f"{report.input}: " if len(reports) > 1 else ""
        warn([f"{where}{note}" for note in report.notes], arguments.quiet)
    _write_pictures(reports[0], arguments)
    write_result(
        compare_text(reports),
        document("compare", compare_objects(reports)),
        arguments.json,
        arguments.force,
    )
    failed = any(row.out_of_memory for report in reports for row in report.rows)
    return OutOfMemoryError.exit_code if failed else 0


def _check_options(
    arguments: argparse.Namespace, inputs: Sequence[Input], allocators: Sequence[str]
) -> None:
    """Raise UsageError for what this comparison cannot follow."""
    for name in ("imports", "run_kernels"):
        if name in arguments.given:
            flag = options.flag(name)
            raise UsageError(f"{flag} needs --device: a simulation runs no operators.")
    if arguments.snapshot and (len(inputs) > 1 or len(allocators) > 1):
        raise UsageError("--snapshot needs one --trace and one --allocator.")
    if arguments.page and len(inputs) > 1:
        raise UsageError("--page needs one --trace.")
    if arguments.plan and PLANNED not in map(allocator_name, allocators):
        raise UsageError("--plan needs --allocator stalloc.")


def _on_device(arguments: argparse.Namespace) -> int:
    with needs_torch("--device"):
        from et_replay.commands.compare_on_device import compare_on_device
    for named in expand(arguments.trace, traces=True):
        check_destination(arguments.json, arguments.force, named.path)
    return compare_on_device(arguments)


def _report(task: _Task) -> InputReport:
    """Read one input and run all allocators over it; runs in a worker where there are several."""
    recording = task.input.read()
    if task.plan is not None:
        recording.check(task.plan)
    history = with_known_settings(recording.history(), task.torch_version)
    fraction = share_of(history, task.memory_fraction, task.device_memory)
    check, version = version_to_imitate(history, task.torch_version, task.device_memory, fraction)
    rows = [
        compare(
            history,
            allocator,
            torch_version=version,
            device_memory=task.device_memory,
            iterations=task.iterations,
            plan=task.plan,
            fraction=fraction,
        )
        for allocator in task.allocators
    ]
    return InputReport(
        input=history.source,
        kind=history.kind,
        events=len(history.events),
        device_memory=capacity_for(history, task.device_memory),
        iterations=task.iterations,
        addresses=check,
        rows=rows,
        notes=history.notes,
        history=history if task.keep_history else None,
        rank=task.input.rank,
        memory_fraction=fraction,
    )


def _check_destinations(arguments: argparse.Namespace, inputs: Sequence[Input]) -> None:
    read = [source.path for source in inputs] + ([arguments.plan] if arguments.plan else [])
    destinations = (
        ("--json", arguments.json),
        ("--snapshot", arguments.snapshot),
        ("--page", arguments.page),
    )
    for flag, destination in destinations:
        for source in read:
            check_destination(destination, arguments.force, source, flag)
    check_distinct(destinations)


def _plans(path: str | None, inputs: Sequence[Input]) -> list[Plan | None]:
    """Read the plan of each input: the one there is, or in a folder that of its name."""
    if path is None:
        return [None] * len(inputs)
    if len(inputs) > 1 and not is_folder(Path(path)):
        raise UsageError("--plan FILE needs one --trace; of several ranks, give the folder.")
    return [_read_plan(plan_path(path, source.path)) for source in inputs]


def _read_plan(path: str) -> Plan:
    """Read the plan that is to be served: one of events."""
    plan = read_plan(path)
    if plan.of_table:
        raise PlanError(
            f"{path} is a plan of a table of buffers ({plan.source}), for those buffers at their"
            " own ticks; compare takes a table as events and makes its own plan: leave out --plan."
        )
    return plan


def _write_pictures(report: InputReport, arguments: argparse.Namespace) -> None:
    """Write the page and the snapshot, as far as they are asked for, of the one input."""
    history = report.history
    if history is None:
        return
    rows = report.rows
    plan = next((row.plan for row in rows if row.plan is not None), None)
    names = [row.allocator for row in rows]
    version, fraction = rows[0].torch_version, report.memory_fraction
    maps = maps_of(history, names, report.device_memory, version, plan, fraction)
    if arguments.page:
        write_page(maps, arguments.page, arguments.force)
    if arguments.snapshot:
        write_whole(Path(arguments.snapshot), snapshot_of(maps[0]), arguments.force)
