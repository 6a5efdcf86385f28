"""One input and how to plan it in, its plan out: what a worker of `et_replay plan` does."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from et_replay.commands.inputs import Input, Recording
from et_replay.errors import PlanError, UsageError
from et_replay.events import MemoryHistory
from et_replay.formats import BufferTable
from et_replay.planning import (
    Effort,
    Plan,
    find_iterations,
    lifetimes,
    plan_history,
    plan_table,
    table_lifetimes,
)
from et_replay.units import counted

AUTO = (-1, -1)
"""For an iteration that is to be found."""
_BUFFER = re.compile(r"([Bb]uffer) (\d+)")


@dataclass(frozen=True)
class PlanTask:
    """What a worker needs to know to plan one input."""

    input: Input
    effort: Effort
    iteration: tuple[int, int] | None
    share_streams: bool
    as_csv: bool


def plan_input(task: PlanTask) -> tuple[Plan, bytes, tuple[str, ...]]:
    """Plan one input; return the plan, its CSV form where that is wanted, and notes on reading."""
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
        return plan, _csv(content, plan) if task.as_csv else b"", notes
    if task.share_streams and len(np.unique(content.events.stream)) < 2:
        alone = f"{content.source} is of one stream, so --share-streams changes nothing."
        content = replace(content, notes=(*content.notes, alone))
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


def _one_iteration(task: PlanTask) -> Iterator[str]:
    """Say why the plan of an iteration that was given may be another than that of all."""
    if task.iteration not in (None, AUTO):
        yield (
            "Of the iterations only the given one is known: what is before it is planned as"
            " happening once, and what follows counts as one more, so the plan may be another than"
            " where --iteration auto or a captured run tells all of them."
        )


def _no_iterations(task: PlanTask, history: MemoryHistory) -> Iterator[str]:
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


def _plan_table(task: PlanTask, table: BufferTable) -> Plan:
    """Plan a table; what cannot be planned is named by file and id."""
    if task.iteration == AUTO:
        raise UsageError("--iteration auto is for recorded events; of a CSV, give BEGIN:END.")
    last = int(table.buffers.start.max(initial=0))
    if task.iteration is not None and task.iteration[0] > last:
        raise UsageError(
            f"In --iteration {task.iteration[0]}:{task.iteration[1]} no buffer of {table.source}"
            f" begins, so nothing comes again; the last one begins at tick {last}."
        )
    try:
        plan = plan_table(table.buffers, task.iteration, task.effort)
    except PlanError as error:
        raise PlanError(f"{table.source}: {_with_ids(str(error), task, table)}") from None
    return replace(plan, source=table.source)


def _with_ids(complaint: str, task: PlanTask, table: BufferTable) -> str:
    """Put ids for the numbers of buffers; several instances of one are numbered otherwise."""
    if len(table_lifetimes(table.buffers, task.iteration)) != len(table.names):
        return complaint
    return _BUFFER.sub(lambda named: f"{named[1]} {table.names[int(named[2])][:80]!r}", complaint)


def _iterations(
    task: PlanTask, recording: Recording, history: MemoryHistory
) -> Sequence[int] | None:
    """Return the ticks at which iterations begin, as asked for, or as they were recorded."""
    if task.iteration is None:
        return recording.begins if len(recording.begins) > 1 else None
    events = len(history.events)
    if task.iteration != AUTO:
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
