"""`et_replay fit`: the smallest device memory that each allocator needs, without a GPU."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from et_replay.commands import options
from et_replay.commands.inputs import (
    Input,
    add_allocators,
    add_inputs,
    add_job_mode,
    allocators_of,
    inputs_of,
    work_on,
)
from et_replay.commands.output import check_destination, warn, write_result
from et_replay.comparison import version_to_imitate
from et_replay.errors import UndefinedBehaviorError
from et_replay.events import MemoryHistory
from et_replay.explain import Explanation, explain, find_fit
from et_replay.explain.explanation import Moment
from et_replay.explain.fit import PLENTY, with_failures_served
from et_replay.explain.way_out import ALLOCATORS, as_taken
from et_replay.program import Mode
from et_replay.report.document import document
from et_replay.report.fit import FitReport, fit_objects, fit_text
from et_replay.serving import with_known_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a search for the smallest device."""
    add_inputs(parser)
    add_allocators(parser, ", ".join(ALLOCATORS))
    add_job_mode(parser)
    options.add_torch_version(parser)
    options.add_other_memory(parser)
    options.add_output(parser)


@dataclass(frozen=True)
class _Task:
    """What a worker needs to know to make the report of one input."""

    input: Input
    allocators: tuple[str, ...]
    torch_version: str | None
    other_memory: int


def run(arguments: argparse.Namespace) -> int:
    """Find the smallest device memory for each allocator, and who is live at the peak."""
    asked = allocators_of(arguments, ()) if arguments.allocator else None
    inputs = inputs_of(arguments, Mode.LAZY_ALLOCATE)
    for source in inputs:
        check_destination(arguments.json, arguments.force, source.path)
    tasks = [
        _Task(
            source,
            asked or tuple(as_taken(name, version) for name in ALLOCATORS),
            version,
            arguments.other_memory,
        )
        for source in inputs
        for version in [source.version(arguments.torch_version)]
    ]
    reports = work_on(tasks, _report, arguments)
    for report in reports:
        where = f"{report.input}: " if len(reports) > 1 else ""
        warn([f"{where}{note}" for note in report.notes], arguments.quiet)
    write_result(
        fit_text(reports),
        document("fit", fit_objects(reports)),
        arguments.json,
        arguments.force,
    )
    return 0


def _report(task: _Task) -> FitReport:
    """Fit one input with all allocators; runs in a worker where there are several."""
    recording = task.input.read()
    history = with_known_settings(recording.history(), task.torch_version)
    _, version = version_to_imitate(history, task.torch_version)
    fits = [find_fit(history, name, torch_version=version) for name in task.allocators]
    return FitReport(
        input=history.source,
        kind=history.kind,
        mode=recording.mode,
        torch_version=version,
        other_memory=task.other_memory,
        fits=fits,
        peak=_peak(history),
        notes=history.notes,
        rank=task.input.rank,
    )


def _peak(history: MemoryHistory) -> Explanation | None:
    """Look at what lives at the peak; None where nothing is known of it."""
    if not history.origins:
        return None
    try:
        return explain(with_failures_served(history), "ideal", PLENTY, moment=Moment.PEAK)
    except UndefinedBehaviorError:
        return None
