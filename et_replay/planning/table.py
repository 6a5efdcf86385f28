"""A table of buffers in, its plan out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from et_replay.buffers import Buffers
from et_replay.errors import PlanError
from et_replay.events import Int64Array
from et_replay.planning.cycle import CyclicPacking, instances, plan_cycle, unrolled
from et_replay.planning.lifetimes import Lifetimes, StorageClass
from et_replay.planning.packing import FAST, Effort, Packing, lower_bound, plan_buffers
from et_replay.planning.plan import Plan, as_buffers

Window = tuple[int, int]


def plan_table(buffers: Buffers, window: Window | None = None, effort: Effort = FAST) -> Plan:
    """Plan buffers, of which those born in the ticks of `window` are born again every iteration.

    The storages of the plan are the rows; one that lives longer than an iteration has as many rows
    as instances live at once, with an offset each. Raises PlanError as `plan_cycle` does.
    """
    packing: Packing | CyclicPacking
    if window is None:
        packing = plan_buffers(buffers, effort)
    else:
        packing = plan_cycle(buffers, *window, effort)
    return Plan(
        source="",
        lifetimes=table_lifetimes(buffers, window),
        offset=packing.offsets,
        arena_bytes=packing.arena_bytes,
        lower_bound_bytes=packing.lower_bound_bytes,
        proven=packing.proven,
        method=packing.method,
        planning_time_ns=packing.planning_time_ns,
        iteration=window,
        of_table=True,
    )


def table_lifetimes(buffers: Buffers, window: Window | None = None) -> Lifetimes:
    """List the buffers as storages, in the order of the offsets of their plan."""
    first, last = int(buffers.start.min(initial=0)), int(buffers.end.max(initial=0))
    copies = np.ones(len(buffers), dtype=np.int64)
    crosses = np.zeros(len(buffers), dtype=bool)
    period = 0
    if window is not None:
        copies, period = instances(buffers, *window), window[1] - window[0]
        crosses = (buffers.start >= window[0]) & (buffers.end > window[1])
    rows = np.repeat(np.arange(len(buffers)), copies)
    shift = period * _turns(copies)
    kinds = np.select(
        [crosses, buffers.end < last, buffers.start > first],
        [StorageClass.CROSSING, StorageClass.PASSING, StorageClass.LASTING],
        StorageClass.RESIDENT,
    )
    return Lifetimes(
        storage=rows,
        size=buffers.size[rows],
        start=buffers.start[rows] + shift,
        end=buffers.end[rows] + shift,
        stream=np.zeros(len(rows), dtype=np.int64),
        alignment=buffers.alignment[rows],
        storage_class=kinds.astype(np.int64)[rows],
        ticks=last,
    )


def is_by_offset(plan: Plan) -> bool:
    """Tell whether a fixed offset forces the lower bound of a plan, as less lives at once."""
    if not plan.of_table:
        return False
    lives = plan.lifetimes
    _, first = np.unique(lives.storage, return_index=True)
    buffers = as_buffers(plan, first, lives.end)
    # no offset but is a multiple of this, so the rest of it is lost anyway
    unit = np.gcd.reduce(buffers.alignment, initial=0) or 1
    buffers = replace(buffers, size=-(-buffers.size // unit) * unit)
    try:
        if plan.iteration is not None:
            buffers = unrolled(buffers, *plan.iteration)
        return plan.lower_bound_bytes > lower_bound(buffers)
    except PlanError:  # too much for a sum of what is rounded up
        return False


def _turns(copies: Int64Array) -> Int64Array:
    """Count 0, 1, ... within the copies of each buffer."""
    begins = np.cumsum(copies) - copies
    return np.arange(int(copies.sum())) - np.repeat(begins, copies)
