"""Runs of a script that knows nothing of its plan, simulated: what each iteration made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from et_replay.allocator_figures import IterationFigures, MemoryStatistics, PlanFigures
from et_replay.errors import OutOfMemoryError
from et_replay.events import Action, AllocationEvents, PlanColumns, RunPlan
from et_replay.planning.run_plan import number_streams
from et_replay.simulation import PLANNED, Simulator


@dataclass(frozen=True)
class RunOutcome:
    """What a run took: the figures of its iterations, and those of all of it."""

    iterations: tuple[IterationFigures, ...]
    statistics: MemoryStatistics
    plan_figures: PlanFigures | None
    failures: tuple[OutOfMemoryError, ...]
    """Requests that did not fit; the rest went on."""


def simulate_run(
    events: AllocationEvents,
    ends: Sequence[int],
    plan: RunPlan | None = None,
    *,
    allocator: str = PLANNED,
    device_memory: int = 80 * 2**30,
    torch_version: str | None = None,
) -> RunOutcome:
    """Run `events` as a script that knows nothing of the plan would, from an empty allocator.

    Iterations end before the rows `ends`, in order; what is behind the last of them is one more.
    Without a plan the figures are those of any other `allocator`. Raises UsageError for an
    allocator, or a plan, that cannot be.
    """
    followed = number_streams(plan) if plan is not None else _no_plan()
    simulator = Simulator(
        allocator,
        device_memory,
        torch_version=torch_version,
        plan=followed.columns if plan is not None else None,
    )
    simulator.follow(followed)
    play = simulator.player(_as_a_process_numbers(events), keep_going=True)
    figures = []
    for iteration, (begin, end) in enumerate(pairwise([0, *ends, len(events)]), start=1):
        play(begin, end)
        figures.append(simulator.begin_iteration(iteration))
    return RunOutcome(
        iterations=tuple(figures),
        statistics=simulator.statistics(),
        plan_figures=simulator.plan_figures(),
        failures=tuple(simulator.failures),
    )


def _no_plan() -> RunPlan:
    none = np.zeros(0, dtype=np.int64)
    columns = PlanColumns(none, none, none, none, none, none, arena=0, period=0)
    return RunPlan(columns, none, none, none, none.astype(np.bool_), (0,), True)


def _as_a_process_numbers(events: AllocationEvents) -> AllocationEvents:
    requests = events.stream[events.action == Action.ALLOC].tolist()
    numbers = {stream: number for number, stream in enumerate(dict.fromkeys([0, *requests]))}
    return replace(events, stream=np.array([numbers[name] for name in events.stream.tolist()]))
