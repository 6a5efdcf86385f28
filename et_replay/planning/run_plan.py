"""A plan of recorded iterations in; what a script's own run of them is served by, out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from et_replay.buffers import Buffers
from et_replay.errors import PlanError
from et_replay.events import Int64Array, PlanColumns, RunPlan
from et_replay.planning.lifetimes import Lifetimes, StorageClass
from et_replay.planning.packing import find_fault
from et_replay.planning.plan import NO_OFFSET, Plan
from et_replay.planning.steady import Repetition
from et_replay.units import counted


def run_plan(plan: Plan) -> RunPlan:
    """Take what a run needs from a plan; its storages are numbered as their requests come.

    Raises PlanError where the plan knows no iterations, or not how the job begins.
    """
    if plan.repetition is None:
        raise PlanError(
            f"The plan of {plan.source} knows of no iterations that a run could repeat: make one"
            " with et_replay plan of a captured run, or of another history with --iteration auto."
        )
    before = int(np.count_nonzero(plan.lifetimes.start == 0))
    if before:
        raise PlanError(
            f"{plan.source} begins with {counted(before, 'storage')} in use, so that its plan does"
            " not know how a run begins: record the job from its start, as et_replay capture does."
        )
    return assemble(plan, plan.repetition)


def assemble(plan: Plan, repetition: Repetition) -> RunPlan:
    """Do as `run_plan`, however the job begins."""
    lives = plan.lifetimes
    rows = _requests(lives, repetition)
    return RunPlan(
        columns=_columns(plan, repetition, rows),
        storage=np.arange(len(rows)),
        size=lives.size[rows],
        stream=lives.stream[rows],
        varies=varying(lives, repetition)[rows],
        begins=tuple(np.unique(np.searchsorted(lives.start[rows], repetition.begins)).tolist()),
        marked=repetition.marked,
    )


def fault_of_run(run: RunPlan) -> str:
    """Say which storages that live together overlap, in a sentence; "" where none do.

    Looked at are the head and as many iterations as it takes for all to meet that ever can.
    """
    columns = run.columns
    placed = np.flatnonzero(columns.offset != NO_OFFSET)
    first = np.searchsorted(columns.storage, columns.storage[placed])
    copies = np.bincount(columns.storage, minlength=1)[columns.storage[placed]]
    turn = placed - first
    iterations = int(copies.max(initial=1)) + 2
    last = iterations * columns.period
    starts, ends, rows = [], [], []
    for k in range(iterations):
        now = (k % copies == turn) & ((columns.start[placed] >= 0) | (k == 0))
        start, end = columns.start[placed[now]], columns.end[placed[now]]
        stays = (start < 0) & (end >= columns.period)
        starts.append(start + k * columns.period)
        ends.append(np.where(stays, last, end + k * columns.period))
        rows.append(placed[now])
    chosen = np.concatenate(rows)
    buffers = Buffers(np.concatenate(starts), np.concatenate(ends), columns.size[chosen])
    return find_fault(buffers, columns.offset[chosen], columns.arena)


def number_streams(plan: RunPlan) -> RunPlan:
    """Call the streams of a plan as an allocator calls those of a process.

    The default stream is 0, the others are 1, 2, ... in the order of their first requests.
    """
    numbers = _numbers(plan.stream)
    columns = replace(plan.columns, stream=_renamed(plan.columns.stream, numbers))
    return replace(plan, columns=columns, stream=_renamed(plan.stream, numbers))


def _requests(lives: Lifetimes, repetition: Repetition) -> Int64Array:
    """List the rows of the head and of the template, but for what does not repeat."""
    itself = repetition.twin == np.arange(len(lives))
    head = lives.start < repetition.begins[-1]
    return np.flatnonzero(np.where(head, lives.storage_class != StorageClass.PRIVATE, itself))


def varying(lives: Lifetimes, repetition: Repetition) -> npt.NDArray[np.bool_]:
    """Tell which rows stand for one that is not of one size in the iterations that repeat."""
    later = np.flatnonzero((lives.start >= repetition.begins[-1]) & (repetition.twin >= 0))
    twins = repetition.twin[later]
    varies = np.zeros(len(lives), dtype=bool)
    varies[twins[lives.size[later] != lives.size[twins]]] = True
    return varies[repetition.twin] & (repetition.twin >= 0)


def _columns(plan: Plan, repetition: Repetition, rows: Int64Array) -> PlanColumns:
    """List the storages of requests, each as often as instances of it live at once."""
    lives, period = plan.lifetimes, repetition.period
    start = repetition.start[rows]
    end = np.maximum(repetition.end[rows], start + 1)
    copies = np.where(start >= 0, -(-(end - start) // period), 1)
    place = np.repeat(np.arange(len(rows)), copies)
    turn = np.arange(len(place)) - np.repeat(np.cumsum(copies) - copies, copies)
    instances = _instances(lives, repetition, rows[place], turn)
    return PlanColumns(
        storage=place,
        offset=plan.offset[instances],
        size=lives.size[rows[place]],
        start=start[place],
        end=end[place],
        stream=lives.stream[rows[place]],
        arena=plan.arena_bytes,
        period=period,
    )


def _instances(
    lives: Lifetimes, repetition: Repetition, rows: Int64Array, turn: Int64Array
) -> Int64Array:
    """Return for rows of the template that of the iteration `turn` later that stands for them."""
    later = np.flatnonzero((lives.start >= repetition.begins[-1]) & (repetition.twin >= 0))
    by_twin = later[np.argsort(repetition.twin[later], kind="stable")]
    first = np.searchsorted(repetition.twin[by_twin], rows)
    return np.where(turn > 0, by_twin.take(first + turn, mode="clip"), rows)


def _numbers(requests: Int64Array) -> dict[int, int]:
    names = dict.fromkeys([0, *requests.tolist()])
    return {name: number for number, name in enumerate(names)}


def _renamed(streams: Int64Array, numbers: dict[int, int]) -> Int64Array:
    """Name streams by their numbers; one that has none comes behind all others."""
    names, place = np.unique(streams, return_inverse=True)
    values = [numbers.setdefault(name, len(numbers)) for name in names.tolist()]
    return np.array(values, dtype=np.int64)[place.reshape(-1)]
