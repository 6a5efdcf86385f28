"""`et_replay plan`: what a job allocates in, an address for all of it out."""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from et_replay.commands import argument_types, options
from et_replay.commands.input_files import file_names, is_folder
from et_replay.commands.inputs import (
    Input,
    Recording,
    add_inputs,
    inputs_of,
    plan_name,
    plans_in,
    work_on,
)
from et_replay.commands.output import (
    check_destination,
    check_distinct,
    warn,
    write_result,
    write_whole,
)
from et_replay.errors import PlanError, UsageError
from et_replay.events import MemoryHistory
from et_replay.formats import BufferTable
from et_replay.planning import (
    Effort,
    Plan,
    encode_plan,
    find_iterations,
    lifetimes,
    plan_history,
    plan_table,
    read_plan,
    table_lifetimes,
)
from et_replay.program import JOB, Mode
from et_replay.report.document import document
from et_replay.report.plan import PlanReport, plan_objects, plan_text
from et_replay.units import counted
from et_replay.whole_files import folder_to_fill

_AUTO = (-1, -1)
_LAST_TICK = 2**62
_BUFFER = re.compile(r"([Bb]uffer) (\d+)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of planning."""
    add_inputs(parser, required=False)
    parser.add_argument(
        "--tensor-allocation-mode",
        choices=(JOB, *(mode.value for mode in Mode)),
        help="for execution traces: whose lifetimes to plan, those of a replay or of the job as it "
        "was; those of stalloc are those of lazy (default: those that the plan of --check was made "
        "with, else job for a captured run and stalloc for another trace)",
    )
    parser.add_argument(
        "--iteration",
        type=_iteration,
        metavar="auto|BEGIN:END",
        help="plan for any number of iterations: the ticks BEGIN to END repeat, as the report "
        "counts them (the first event of a history is at tick 1), or of a history with auto the "
        "iterations that are found (default: the iterations of a captured run repeat; else all "
        "happens once, or again after all has been freed)",
    )
    parser.add_argument(
        "--share-streams",
        action="store_true",
        help="let storages of several streams share memory; under the plan one stream then waits "
        "for the work of another (default: each stream has memory of its own)",
    )
    parser.add_argument(
        "--effort",
        choices=("fast", "best"),
        default="fast",
        help="how many steps to search where the lower bound is not reached (default: fast)",
    )
    parser.add_argument(
        "--timeout",
        type=argument_types.seconds,
        metavar="S",
        help="take the best plan that there is after so many seconds (default: the effort decides)",
    )
    _add_files(parser)
    options.add_output(parser, "--json and --output")


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        type=argument_types.path,
        metavar="FILE",
        help="write the plan file, or of a CSV with a name in .csv the CSV with an offset column; "
        "of several inputs, the folder for their plan files",
    )
    parser.add_argument(
        "--check",
        type=argument_types.path,
        metavar="FILE",
        help="check and describe a plan file, and with --trace whether it was made for that",
    )


_OF_MAKING = ("output", "iteration", "share_streams", "effort", "timeout")
"""Where the options are kept that say how to make a plan."""
_PLAN_FILES = (".json", ".csv")


@dataclass(frozen=True)
class _Task:
    """What a worker needs to know to plan one input."""

    input: Input
    effort: Effort
    iteration: tuple[int, int] | None
    share_streams: bool
    as_csv: bool


def run(arguments: argparse.Namespace) -> int:
    """Choose an address for every storage ahead of time; make, check and describe plan files."""
    inputs = inputs_of(arguments, Mode.STALLOC_PLANNED)
    if arguments.check is not None:
        reports = [_check(arguments, inputs)]
    elif inputs:
        reports = _make(arguments, inputs)
    else:
        raise UsageError("Nothing to plan: --trace says what, or --check names a plan file.")
    write_result(
        plan_text(reports),
        document("plan", plan_objects(reports)),
        arguments.json,
        arguments.force,
    )
    return 0


def _check(arguments: argparse.Namespace, inputs: Sequence[Input]) -> PlanReport:
    if is_folder(Path(arguments.check)):
        raise UsageError(
            f"--check {arguments.check} is a folder, expected one plan file: give one of"
            f" {file_names(plans_in(arguments.check))}, and with --trace the file that it"
            " was made for."
        )
    if len(inputs) > 1:
        raise UsageError("--check takes one --trace at most.")
    for name in _OF_MAKING:
        if name in arguments.given:
            raise UsageError(f"{options.flag(name)} is for making a plan, and --check makes none.")
    check_destination(arguments.json, arguments.force, arguments.check)
    plan = read_plan(arguments.check)
    checked = "no two storages that live together share a byte"
    notes: tuple[str, ...] = ()
    for source in inputs:
        recording = source.for_plan(plan).read()
        warn(recording.content.notes, arguments.quiet)
        recording.check(plan)
        checked, notes = f"{checked}; made for {source.path}", recording.content.notes
    return PlanReport(plan.source, plan, checked=checked, notes=notes)


def _make(arguments: argparse.Namespace, inputs: Sequence[Input]) -> list[PlanReport]:
    destinations = _destinations(arguments.output, inputs)
    is_one = arguments.output is None or arguments.output in destinations
    with nullcontext() if is_one else folder_to_fill(Path(arguments.output)):
        for source, destination in zip(inputs, destinations, strict=True):
            check_destination(arguments.json, arguments.force, source.path)
            check_destination(destination, arguments.force, source.path, "--output")
            check_distinct((("--output", destination), ("--json", arguments.json)))
        return list(_planned(arguments, inputs, destinations))


def _planned(
    arguments: argparse.Namespace, inputs: Sequence[Input], destinations: Sequence[str | None]
) -> Iterator[PlanReport]:
    """Plan all inputs, and write the plan files."""
    effort = Effort(arguments.effort, arguments.timeout)
    tasks = [
        _Task(source, effort, arguments.iteration, arguments.share_streams, _is_csv(destination))
        for source, destination in zip(inputs, destinations, strict=True)
    ]
    for source, (plan, written, notes), destination in zip(
        inputs, work_on(tasks, _plan, arguments), destinations, strict=True
    ):
        where = f"{source.path}: " if len(inputs) > 1 else ""
        warn([f"{where}{note}" for note in notes], arguments.quiet)
        if destination is not None:
            content = written if _is_csv(destination) else encode_plan(plan)
            write_whole(Path(destination), content, arguments.force)
        yield PlanReport(plan.source, plan, destination, notes=notes, rank=source.rank)


def _is_csv(destination: str | None) -> bool:
    return destination is not None and destination.endswith(".csv")


def _destinations(output: str | None, inputs: Sequence[Input]) -> list[str | None]:
    """Say for each input where its plan goes: one file, or a folder with one file each."""
    if output is None:
        return [None] * len(inputs)
    folder = Path(output)
    if len(inputs) == 1 and not is_folder(folder):
        return [output]
    if folder.suffix in _PLAN_FILES:
        raise UsageError(f"--output {output} must name a folder for the plans of several inputs.")
    names = [plan_name(source.path) for source in inputs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Several inputs would be written to {folder / name}.")
    return [str(folder / name) for name in names]


def _plan(task: _Task) -> tuple[Plan, bytes, tuple[str, ...]]:
    """Plan one input; return the plan, for a CSV its CSV form, and what the reader noted."""
    recording = task.input.read()
    content = recording.content
    if task.as_csv and not isinstance(content, BufferTable):
        raise UsageError(
            f"{task.input.path} is no CSV of buffers, so its plan is none: expected a name for"
            " --output that ends in .json."
        )
    if isinstance(content, BufferTable):
        plan = _plan_table(task, content)
        alone = f"{content.source} tells no streams, which --share-streams is about."
        notes = (*content.notes, *([alone] if task.share_streams else ()))
        return plan, _csv(content, plan), notes
    begins = _iterations(task, recording, content)
    plan = plan_history(
        content,
        task.effort,
        begins,
        marked=task.iteration is None,
        share_streams=task.share_streams,
    )
    notes = (*content.notes, *([] if begins else _no_iterations(task, content)))
    plan = replace(plan, mode=recording.mode, window=recording.window)
    return replace(plan, notes=(*plan.notes, *_one_iteration(task))), b"", notes


def _one_iteration(task: _Task) -> Iterator[str]:
    """Say why the plan of an iteration that was given may be another than that of all."""
    if task.iteration not in (None, _AUTO):
        yield (
            "Of the iterations only the given one is known: what is before it is planned as"
            " happening once, and what follows counts as one more, so the plan may be another than"
            " where --iteration auto or a captured run tells all of them."
        )


def _no_iterations(task: _Task, history: MemoryHistory) -> Iterator[str]:
    """Say why the plan of a captured run is not one of iterations."""
    if task.input.run is None:
        return
    ended = len(task.input.run.iterations)
    why = f"{counted(ended, 'iteration')} of it ended, expected 2 or more"
    if ended > 1:
        why = "it does not tell when its events happened"
    yield (
        f"{history.source} is planned as happening once, not iteration by iteration: {why};"
        " --iteration auto looks for iterations in it."
    )


def _plan_table(task: _Task, table: BufferTable) -> Plan:
    """Plan a table; what cannot be planned is named by file and id."""
    if task.iteration == _AUTO:
        raise UsageError("--iteration auto is for recorded events; of a CSV, give BEGIN:END.")
    try:
        plan = plan_table(table.buffers, task.iteration, task.effort)
    except PlanError as error:
        raise PlanError(f"{table.source}: {_with_ids(str(error), task, table)}") from None
    return replace(plan, source=table.source)


def _with_ids(complaint: str, task: _Task, table: BufferTable) -> str:
    """Put ids for the numbers of buffers; several instances of one are numbered otherwise."""
    if len(table_lifetimes(table.buffers, task.iteration)) != len(table.names):
        return complaint
    return _BUFFER.sub(lambda named: f"{named[1]} {table.names[int(named[2])][:80]!r}", complaint)


def _iterations(task: _Task, recording: Recording, history: MemoryHistory) -> Sequence[int] | None:
    """Return the ticks at which iterations begin, as asked for, or as they were recorded."""
    if task.iteration is None:
        return recording.begins if len(recording.begins) > 1 else None
    events = len(history.events)
    if task.iteration != _AUTO:
        begin, end = task.iteration
        if end > events + 1:
            raise UsageError(
                f"--iteration {begin}:{end} is beyond tick {events + 1}, where the {events} events"
                " there are end."
            )
        return max(begin, 1), end
    found = find_iterations(lifetimes(history.events, history.segments))
    if found is None:
        raise PlanError(
            f"No iterations were found in {history.source}: no request comes again at even"
            " distances. Give one as --iteration BEGIN:END, or plan all events as they are."
        )
    return found


def _csv(table: BufferTable, plan: Plan) -> bytes:
    """Write the table with the offsets that the plan gives."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "lower", "upper", "size", "alignment", "offset"])
    lives = plan.lifetimes
    columns = (lives.start, lives.end, lives.size, lives.alignment, plan.offset)
    rows = zip(lives.storage.tolist(), np.stack(columns, axis=1).tolist(), strict=True)
    writer.writerows([table.names[storage], *row] for storage, row in rows)
    return text.getvalue().encode()


def _iteration(text: str) -> tuple[int, int]:
    """Read which events or ticks repeat."""
    if text == "auto":
        return _AUTO
    begin, _, end = text.partition(":")
    try:
        window = int(begin), int(end)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Expected auto or BEGIN:END, got {text!r}.") from None
    if window[0] < 0:
        raise argparse.ArgumentTypeError(f"Expected a beginning of 0 or more, got {text!r}.")
    if window[0] >= window[1]:
        raise argparse.ArgumentTypeError(f"Expected an end after the beginning, got {text!r}.")
    if window[1] > _LAST_TICK:
        raise argparse.ArgumentTypeError(f"Expected an end of at most {_LAST_TICK}, got {text!r}.")
    return window
