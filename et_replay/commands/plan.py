"""`et_replay plan`: what a job allocates in, an address for all of it out."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from et_replay.commands import argument_types, options
from et_replay.commands.input_files import file_names, is_folder
from et_replay.commands.inputs import (
    Input,
    add_inputs,
    inputs_of,
    plan_name,
    work_on,
)
from et_replay.commands.output import (
    check_destination,
    check_distinct,
    warn,
    write_result,
    write_whole,
)
from et_replay.commands.plan_task import AUTO, PlanTask, plan_input
from et_replay.errors import UsageError
from et_replay.planning import (
    Effort,
    encode_plan,
    read_plan,
)
from et_replay.planning.plan_folder import plans_in
from et_replay.program import JOB, Mode
from et_replay.report.document import document
from et_replay.report.plan import PlanReport, plan_objects, plan_text
from et_replay.whole_files import folder_to_fill

_LAST_TICK = 2**62


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
        PlanTask(source, effort, arguments.iteration, arguments.share_streams, _is_csv(destination))
        for source, destination in zip(inputs, destinations, strict=True)
    ]
    for source, (plan, written, notes), destination in zip(
        inputs, work_on(tasks, plan_input, arguments), destinations, strict=True
    ):
        where = f"{source.path}: " if len(inputs) > 1 else ""
        warn([f"{where}{note}" for note in notes], arguments.quiet)
        if destination is not None:
            write_whole(Path(destination), written or encode_plan(plan), arguments.force)
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


def _iteration(text: str) -> tuple[int, int]:
    """Read which events or ticks repeat."""
    if text == "auto":
        return AUTO
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
