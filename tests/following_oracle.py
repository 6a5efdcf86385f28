"""Which row of a list each request is, slow and obvious: rows are searched one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEAR = 8
STRETCH = 32
RUN = 4


class Wanted(NamedTuple):
    """A row of the list; one that varies is of any size."""

    size: int
    stream: int = 0
    varies: bool = False


Request = tuple[int, int]
"""Size and stream."""


@dataclass
class FollowingOracle:
    """The list `rows`, whose iterations begin at `begins`."""

    rows: Sequence[Wanted]
    begins: Sequence[int]
    marked: bool = True
    told: bool = False
    place: int = 0
    rival: int | None = None
    stranger: int | None = None
    agreed: int = 0
    lost: list[Request] = field(default_factory=list)
    """Those of known size that came out of order, since one came in order."""
    resynchronisations: int = 0

    def __post_init__(self) -> None:
        self.first, self.end = 0, len(self.rows)
        self.open = set(range(len(self.rows)))

    def begin_iteration(self, iteration: int) -> None:
        if not self.marked:
            return
        bounds = [*self.begins, len(self.rows)]
        iteration = min(iteration, len(self.begins) - 1)
        self.told = True
        self.first, self.end = bounds[iteration], bounds[iteration + 1]
        self._go_back_to(self.first)

    def take(self, size: int, stream: int) -> int | None:
        """Return the row of a request."""
        if self.place == self.end and not self.told and self.begins[-1] < self.end:
            self.first = self.begins[-1]
            self._go_back_to(self.first)
        request = (size, stream)
        known = any(not row.varies and row[:2] == request for row in self.rows)
        ahead = range(self.place, min(self.place + STRETCH, self.end))
        here = next((r for r in ahead if r in self.open and self.rows[r].stream == stream), None)
        if here is not None and self._asks(here, request):
            if self.stranger is not None and self.stranger > here:
                self.open.add(self.stranger)
            self._settle(self.place)
            return self._come_in_order(here)
        in_its_place = here if here is not None and self.rows[here].varies else None
        if not known:
            return self._come_in_order(in_its_place)
        self.lost = [*self.lost, request][-RUN:]
        run = self._run()
        if run is not None:
            self.resynchronisations += 1
            if run < self.place:
                self._go_back_to(run + 1)
            self.open.discard(run)
            self._settle(run + 1)
            return run
        if self.rival is not None:
            row = self._first(request, range(self.rival, min(self.rival + NEAR, self.end)))
            if row is not None:
                return self._follow_rival(row)
        skipped = range(max(self.least, self.place - NEAR), self.place)
        row = self._first(request, [*skipped, *ahead[:NEAR]])
        if row is not None:
            self.rival, self.agreed = row + 1, 1
            self.stranger = row if row > self.place else None
            self.open.discard(row)
            return row
        if in_its_place is not None:
            return self._come_in_order(in_its_place)
        begin = self.place if self.rival is None else max(self.rival, self.place)
        row = self._first(request, range(begin, self.end))
        if row is not None:
            self.rival, self.agreed, self.stranger = row + 1, 1, None
        return None

    def _asks(self, row: int, request: Request) -> bool:
        return not self.rows[row].varies and self.rows[row][:2] == request

    def _first(self, request: Request, rows: Iterable[int]) -> int | None:
        return next((r for r in rows if r in self.open and self._asks(r, request)), None)

    def _run(self) -> int | None:
        """Return the last row of the four requests that were lost, where they stand in a row."""
        if len(self.lost) < RUN:
            return None
        fixed = [r for r in range(len(self.rows)) if not self.rows[r].varies]
        windows = zip(*(fixed[i:] for i in range(RUN)), strict=False)
        ends = [
            window[-1]
            for window in windows
            if all(map(self._asks, window, self.lost)) and self.first <= window[-1] < self.end
        ]
        ahead = [row for row in ends if row >= self.place]
        return min(ahead) if ahead else max(ends, default=None)

    def _follow_rival(self, row: int) -> int | None:
        close = abs(row - self.place) < STRETCH
        self.rival, self.stranger = row + 1, None
        self.agreed += 1
        if self.agreed < (2 if close else RUN):
            return None
        self.resynchronisations += not close
        self.open.discard(row)
        self._settle(row + 1)
        return row

    def _come_in_order(self, row: int | None) -> int | None:
        if row is not None:
            self.open.discard(row)
            if row - self.place == STRETCH - 1:
                self.place = row
        self._pass()
        return row

    def _settle(self, place: int) -> None:
        self.rival, self.stranger, self.agreed, self.lost = None, None, 0, []
        self.place = place
        self._pass()

    def _pass(self) -> None:
        while self.place < self.end and self.place not in self.open:
            self.place += 1

    def _go_back_to(self, row: int) -> None:
        self.open = set(range(row, len(self.rows)))
        self.least = row
        self._settle(row)

    least: int = 0
    """No row before is open."""
