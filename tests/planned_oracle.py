"""Where a planned allocator puts things, slow and obvious: cell by cell, tick by tick."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from plan_rows import CELL, Row


@dataclass
class Lease:
    cells: range
    end: int | None  # the tick at which it is expected to go
    iteration: int


@dataclass
class PlannedOracle:
    """`served` lists how each request was served, those of `displaced` twice."""

    rows: Sequence[Row]
    period: int
    now: int = 0
    iteration: int = 0
    leases: dict[int, Lease] = field(default_factory=dict)
    served: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = min([0, *(row.start for row in self.rows)])

    def allocate(self, storage: int, size: int, stream: int) -> int | None:
        """Return the cell that a request gets in the arena, None where the fallback is asked."""
        cells = -(-size // CELL)
        rows = [row for row in self.rows if row.storage == storage]
        if not rows:
            start = self.now if self.now < self.period else 0
            return self._reuse(storage, cells, stream, set(range(start, self.period)), None)
        free = [row for row in rows if self._is_free(row, cells, stream)]
        row = min(free or rows, key=self._wait)
        self.iteration += row.start < self.now
        self.now = row.start
        if free:
            self.served.append("planned")
            return self._lease(storage, row.offset, cells, row.end)
        if row.offset >= 0:
            self.served.append("displaced")
        return self._reuse(storage, cells, stream, row.ticks(self.period), row.end)

    def free(self, storage: int) -> None:
        lease = self.leases.pop(storage, None)
        if lease is None or lease.end is None:
            return
        passed = self.iteration - lease.iteration
        end = lease.end - passed * self.period
        if self.now < end <= self.period and (end >= 0 or not passed):
            self.now = end

    def _wait(self, row: Row) -> float:
        if row.start >= self.now:
            return row.start - self.now
        return row.start - self.now + self.period if row.start >= 0 else float("inf")

    def _is_free(self, row: Row, cells: int, stream: int) -> bool:
        wanted = range(row.offset, row.offset + cells)
        fits = row.offset >= 0 and row.stream == stream and cells <= row.size
        return fits and not set(wanted) & self._used()

    def _used(self) -> set[int]:
        return {cell for lease in self.leases.values() for cell in lease.cells}

    def _reuse(
        self, storage: int, cells: int, stream: int, life: set[int], end: int | None
    ) -> int | None:
        own = {cell for row in self.rows if row.stream == stream for cell in row.cells}
        others = {cell for row in self.rows if row.stream != stream for cell in row.cells}
        meets = {cell for row in self.rows if row.ticks(self.period) & life for cell in row.cells}
        fits = [run for run in _runs(own - others - meets - self._used()) if len(run) >= cells]
        if not fits:
            self.served.append("fallback")
            return None
        self.served.append("reused")
        return self._lease(storage, min(fits, key=len).start, cells, end)

    def _lease(self, storage: int, cell: int, cells: int, end: int | None) -> int:
        self.leases[storage] = Lease(range(cell, cell + cells), end, self.iteration)
        return cell


def _runs(cells: set[int]) -> Iterator[range]:
    """Yield the runs of neighbours, from the lowest."""
    for _, run in groupby(enumerate(sorted(cells)), key=lambda pair: pair[1] - pair[0]):
        members = [cell for _, cell in run]
        yield range(members[0], members[-1] + 1)
