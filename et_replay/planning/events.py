"""Allocation events in, an address for every storage out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from et_replay.errors import PlanError
from et_replay.events import AllocationEvents, MemoryHistory, SegmentState
from et_replay.planning.lifetimes import lifetimes
from et_replay.planning.packing import FAST, Effort
from et_replay.planning.plan import Plan, fault_of
from et_replay.planning.steady import steady_state
from et_replay.planning.streams import pack_cycle, pack_once, plan_by_stream, plan_together


def plan_history(
    history: MemoryHistory,
    effort: Effort = FAST,
    iterations: Sequence[int] | None = None,
    *,
    marked: bool = False,
    share_streams: bool = False,
) -> Plan:
    """Plan all that a history allocates; see `plan_events`."""
    try:
        plan = plan_events(
            history.events,
            history.segments,
            effort,
            iterations,
            marked=marked,
            share_streams=share_streams,
        )
    except PlanError as error:
        raise PlanError(f"{history.source}: {error}") from None
    return replace(plan, source=history.source)


def plan_events(
    events: AllocationEvents,
    segments: Sequence[SegmentState] = (),
    effort: Effort = FAST,
    iterations: Sequence[int] | None = None,
    *,
    marked: bool = False,
    share_streams: bool = False,
) -> Plan:
    """Plan the storages of `events` and those live in `segments` before them.

    Without `iterations` the events happen once, or again from the start after all has been freed.
    With the ticks at which iterations begin, the plan holds for any number of them after the events
    before, see steady.py; what it leaves out is UNMATCHED. `marked` says that the iterations are
    those that were marked while the events were recorded. Storages of different streams share
    memory only with `share_streams`: the events do not tell when a stream's work on freed memory is
    done, and who serves the plan must let one wait for the other. Raises PlanError where nothing
    repeats, where streams that are to share memory interleave differently in each iteration, or
    where more than 2^61 bytes live at once.
    """
    lives = lifetimes(events, segments)
    share_streams = share_streams and len(np.unique(lives.stream)) > 1
    if iterations is None:
        if share_streams:
            return plan_together(lives, lives.ticks, partial(pack_once, lives), effort)
        return plan_by_stream(lives, lambda rows: pack_once(lives, rows, effort))
    steady = steady_state(lives, iterations, marked=marked, one_clock=share_streams)
    lives, repetition = steady.lifetimes, steady.repetition
    if share_streams:
        pack = partial(pack_cycle, steady)
        plan = plan_together(lives, repetition.period, pack, effort, steady.window)
    else:
        plan = plan_by_stream(lives, lambda rows: pack_cycle(steady, rows, effort))
    return _checked(replace(plan, iteration=steady.window, repetition=repetition))


def _checked(plan: Plan) -> Plan:
    """Return the plan of what repeats; raises PlanError where storages overlap in it."""
    fault = fault_of(plan)
    if fault:
        raise PlanError(
            f"What was recorded does not repeat as one iteration does: {fault} Choose another"
            " iteration, or plan all events as they are."
        )
    return plan
