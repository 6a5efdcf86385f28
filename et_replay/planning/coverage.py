"""A plan in; what of an iteration it has addresses for, and why of the rest not, out."""

from __future__ import annotations

import enum

import numpy as np

from et_replay.allocator_figures import Served
from et_replay.planning.lifetimes import StorageClass
from et_replay.planning.plan import Plan
from et_replay.planning.run_plan import varying


class Fate(enum.Enum):
    """What a plan does with a request of the iteration that repeats, and why."""

    PLANNED = "at one address in every iteration"
    CROSSING = "at one address, freed in a later iteration"
    VARYING = "of varying size: where the arena is idle, else in the caching allocator"
    SOMETIMES = "not in every iteration: where the arena is idle, else in the caching allocator"
    SELDOM = "in less than half of the iterations: left out"
    NEVER_FREED = "never freed: in the caching allocator"
    PRIVATE = "in private pools: left out"


_FATES = {
    StorageClass.PASSING: Fate.PLANNED,
    StorageClass.CROSSING: Fate.CROSSING,
    StorageClass.VARYING: Fate.VARYING,
    StorageClass.PRIVATE: Fate.PRIVATE,
}


def coverage(plan: Plan) -> dict[Fate, Served]:
    """Count the requests of the iteration that repeats; none where the plan is of no iteration."""
    if plan.repetition is None or plan.iteration is None:
        return {}
    lives = plan.lifetimes
    begin, end = plan.iteration
    one_size = ~varying(lives, plan.repetition)
    fates: dict[Fate, Served] = {}
    for row in np.flatnonzero((lives.start >= begin) & (lives.start < end)).tolist():
        fate = _FATES.get(StorageClass(lives.storage_class[row]))
        if fate in (None, Fate.VARYING) and lives.end[row] >= lives.ticks:
            fate = Fate.NEVER_FREED
        elif fate is Fate.VARYING and one_size[row]:
            fate = Fate.SOMETIMES
        fate = fate or Fate.SELDOM
        before = fates.get(fate, Served(0, 0))
        fates[fate] = Served(before.requests + 1, before.bytes + int(lives.size[row]))
    return {fate: fates[fate] for fate in Fate if fate in fates}
