"""Plans and events for a planned allocator, written row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from following_oracle import Wanted

from et_replay.events import Action, AllocationEvents, Int64Array, PlanColumns
from et_replay.simulation import PlanFigures, Simulator

CELL = 512
BASE = 0x7F0000000000
"""Where the first segment of a simulated device lies: the arena, as it is taken first."""


@dataclass(frozen=True, eq=False)
class FollowedRows:
    """A plan by hand, and the requests that it was made for."""

    columns: PlanColumns
    storage: Int64Array
    size: Int64Array
    stream: Int64Array
    varies: npt.NDArray[np.bool_]
    begins: Sequence[int] = (0,)
    marked: bool = True

    @classmethod
    def of(
        cls,
        columns: PlanColumns,
        rows: Sequence[Wanted],
        begins: Sequence[int] = (0,),
        marked: bool = True,
    ) -> FollowedRows:
        """Ask for the storages 0, 1, ... in order."""
        table = np.array([(row.size, row.stream) for row in rows], dtype=np.int64).reshape(-1, 2)
        size, stream = (np.ascontiguousarray(column) for column in table.T)
        varies = np.array([row.varies for row in rows], dtype=np.bool_)
        return cls(columns, np.arange(len(rows)), size, stream, varies, begins, marked)


Event = tuple[Action, int, int, int]
"""Action, storage, size, stream."""


class Row(NamedTuple):
    """A row of a plan; offset and size are cells, an offset of -1 is none."""

    storage: int
    offset: int
    size: int
    start: int
    end: int
    stream: int = 0

    @property
    def cells(self) -> range:
        return range(self.offset, self.offset + self.size) if self.offset >= 0 else range(0)

    def ticks(self, period: int) -> set[int]:
        """Return the ticks of any iteration in which it lives."""
        return {t if t < period else t % period for t in range(self.start, self.end)}


def plan_columns(rows: Sequence[Row], period: int, arena: int | None = None) -> PlanColumns:
    """Make the plan of these rows, in bytes."""
    if arena is None:
        arena = max((row.cells.stop for row in rows), default=0)
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 6)
    storage, offset, size, start, end, stream = (np.ascontiguousarray(c) for c in table.T)
    offset = np.where(offset < 0, -1, offset * CELL)
    return PlanColumns(storage, offset, size * CELL, start, end, stream, arena * CELL, period)


def first_fit(lives: Sequence[Row], period: int) -> list[Row]:
    """Plan rows that have no offset yet: each at the lowest that is free in all of its ticks."""
    taken: dict[int, set[int]] = {}
    rows = []
    for row in lives:
        ticks = row.ticks(period)
        used = {cell for tick in ticks for cell in taken.get(tick, ())}
        offset = next(o for o in range(10**6) if not used & set(range(o, o + row.size)))
        rows.append(row._replace(offset=offset))
        for tick in ticks:
            taken.setdefault(tick, set()).update(rows[-1].cells)
    return rows


def columns(rows: Iterable[Event]) -> AllocationEvents:
    table = np.array(list(rows), dtype=np.int64).reshape(-1, 4)
    action, storage, size, stream = (np.ascontiguousarray(column) for column in table.T)
    return AllocationEvents(action.astype(np.int8), storage, size, stream, storage, storage[:0])


def planned(rows: Sequence[Row], period: int, arena: int | None = None) -> Simulator:
    return Simulator("stalloc", 2**40, plan=plan_columns(rows, period, arena))


def figures_of(simulator: Simulator) -> PlanFigures:
    figures = simulator.plan_figures()
    assert figures is not None
    return figures


def requests(simulator: Simulator) -> tuple[int, int, int, int]:
    figures = figures_of(simulator)
    served = (figures.planned, figures.reused, figures.displaced, figures.fallback)
    return served[0].requests, served[1].requests, served[2].requests, served[3].requests
