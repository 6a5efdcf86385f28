"""Plans: an address for every storage, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from et_replay.buffers import Buffers
from et_replay.events import Int64Array, PlanColumns
from et_replay.planning.lifetimes import Lifetimes, StorageClass
from et_replay.planning.packing import find_fault, lower_bound
from et_replay.planning.steady import Repetition

NO_OFFSET = -1
LEFT_OUT = (StorageClass.PRIVATE, StorageClass.UNMATCHED, StorageClass.VARYING)
"""The classes of storages that get no address."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Offsets in one arena for the storages of `lifetimes`, -1 for those that it leaves out.

    `lower_bound_bytes` is the most that lives at once, summed over streams that share no memory, or
    where a buffer of a table ends that has a fixed offset. `iteration` are the ticks [begin, end)
    of the one that repeats, if the plan was made for that.
    `mode` and `window` are the tensor allocation mode and the window with which an execution trace
    was read, "" where that is not known; `of_table` says that the storages are the buffers of a
    table, at its own ticks. `notes` says in sentences what the plan does not cover, and why.
    """

    source: str
    lifetimes: Lifetimes
    offset: Int64Array
    arena_bytes: int
    lower_bound_bytes: int
    proven: bool
    method: str
    planning_time_ns: int
    iteration: tuple[int, int] | None = None
    repetition: Repetition | None = None
    notes: tuple[str, ...] = ()
    mode: str = ""
    window: str = ""
    of_table: bool = False

    @property
    def covered(self) -> npt.NDArray[np.bool_]:
        """Which storages have an address."""
        return np.not_equal(self.offset, NO_OFFSET)

    def columns(self) -> PlanColumns:
        """Return what an allocator serves; what has no address is told when it will be freed."""
        lives = self.lifetimes
        rows = np.flatnonzero(lives.storage_class != StorageClass.PRIVATE)
        return PlanColumns(
            storage=lives.storage[rows],
            offset=self.offset[rows],
            size=lives.size[rows],
            start=lives.start[rows],
            end=lives.end[rows],
            stream=lives.stream[rows],
            arena=self.arena_bytes,
            period=lives.ticks,
        )


def fault_of(plan: Plan) -> str:
    """Say what is wrong with a plan, the first fault in a sentence; "" where nothing is."""
    rows = np.flatnonzero(plan.covered)
    buffers = as_buffers(plan, rows, plan.lifetimes.end)
    return find_fault(buffers, plan.offset[rows], plan.arena_bytes)


def as_buffers(plan: Plan, rows: Int64Array, end: Int64Array) -> Buffers:
    """Take storages of a plan as the buffers that were planned, with other ends of their lives."""
    lives = plan.lifetimes
    if plan.of_table:
        return Buffers(lives.start[rows], end[rows], lives.size[rows], lives.alignment[rows])
    return buffers_of(lives, rows, lives.start, end)


def load_of(plan: Plan) -> int:
    """Return the most that lives at once up to the end of the iteration, on all streams.

    Raises PlanError where that is more than 2^61 bytes.
    """
    lives = plan.lifetimes
    stop = int(lives.end.max(initial=0)) if plan.iteration is None else plan.iteration[1]
    seen = np.flatnonzero(plan.covered & (lives.start < stop))
    return lower_bound(as_buffers(plan, seen, np.minimum(lives.end, stop)))


def is_by_stream(plan: Plan) -> bool:
    """Tell whether the lower bound of a plan is that of several streams, added up."""
    several = len(np.unique(plan.lifetimes.stream[plan.covered])) > 1
    return several and plan.lower_bound_bytes > load_of(plan)


def buffers_of(lives: Lifetimes, rows: Int64Array, start: Int64Array, end: Int64Array) -> Buffers:
    """Take storages as buffers; where all are aligned alike, the rest of a unit is lost anyway."""
    size, alignment = lives.size[rows], lives.alignment[rows]
    if len(rows) and (alignment == alignment[0]).all():
        size = -(-size // alignment) * alignment
    return Buffers(start[rows], end[rows], size, alignment)
