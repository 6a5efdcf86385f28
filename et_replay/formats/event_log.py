"""Events in the making: rows go in one by one, columns come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from et_replay.events import Action, AllocationEvents, Int64Array

LARGEST = (1 << 63) - 1
LARGEST_BYTES = 1 << 61
"""Beyond it, sums of sizes could overflow in the planner."""


class EventLog:
    """Rows of AllocationEvents, each with the recorded address of its block (0: there is none).

    `time` is when what is added next happened, in Unix microseconds.
    """

    def __init__(self) -> None:
        self.time = 0
        self._times: list[int] = []
        self._actions: list[int] = []
        self._storages: list[int] = []
        self._sizes: list[int] = []
        self._streams: list[int] = []
        self._addresses: list[int] = []

    def __len__(self) -> int:
        return len(self._actions)

    def add(
        self, action: Action, storage: int = -1, size: int = 0, stream: int = 0, address: int = 0
    ) -> None:
        """Append a row."""
        self._actions.append(action)
        self._storages.append(storage)
        self._sizes.append(size)
        self._streams.append(stream)
        self._addresses.append(address)
        self._times.append(self.time)

    def events(self) -> AllocationEvents:
        """Return the rows as columns."""
        return AllocationEvents(
            action=np.array(self._actions, np.int8),
            storage=np.array(self._storages, np.int64),
            size=np.array(self._sizes, np.int64),
            stream=np.array(self._streams, np.int64),
            node_id=np.full(len(self), -1, np.int64),
            steps=np.array([], np.int64),
        )

    def addresses(self) -> Int64Array:
        """Return the recorded addresses, one a row."""
        return np.array(self._addresses, np.int64)

    def times(self) -> Int64Array:
        """Return when each row happened; nothing where that is not known of all."""
        return np.array(self._times if all(self._times) else [], np.int64)


class PointerLog:
    """Allocations and frees told apart by their pointers alone, as most logs have them.

    A block that is freed without having been allocated was there before the log began: it is
    allocated before everything else. One that is allocated again while it lives was freed
    unseen, just before.
    """

    def __init__(self) -> None:
        self.unseen_frees = 0
        self._rows: list[tuple[Action, int, int, int, int]] = []
        self._before: list[tuple[Action, int, int, int, int]] = []
        self._live: dict[int, tuple[int, int, int]] = {}
        self._storages = 0

    def allocate(self, address: int, size: int, stream: int) -> None:
        """Add an allocation; a null pointer is none."""
        if not address:
            return
        if address in self._live:
            self.unseen_frees += 1
            self.free(address, size, stream)
        storage = self._next_storage()
        self._live[address] = storage, size, stream
        self._rows.append((Action.ALLOC, storage, size, stream, address))

    def free(self, address: int, size: int, stream: int) -> None:
        """Add a free; size and stream count only where the allocation was not seen."""
        if not address:
            return
        known = self._live.pop(address, None)
        if known is None:
            known = self._next_storage(), size, stream
            self._before.append((Action.ALLOC, *known, address))
        self._rows.append((Action.FREE, *known, address))

    def fail(self, size: int, stream: int) -> None:
        """Add a request that failed."""
        self._rows.append((Action.OUT_OF_MEMORY, -1, size, stream, 0))

    def finish(self) -> EventLog:
        """Return all rows, those first that were there before the log began."""
        log = EventLog()
        for row in (*self._before, *self._rows):
            log.add(*row)
        return log

    def notes(self) -> list[str]:
        """Say what the log did not tell."""
        notes = []
        if self._before:
            size = sum(row[2] for row in self._before)
            notes.append(
                f"Blocks freed in it but allocated before it began: {len(self._before)}, of {size}"
                " bytes; they are allocated before the first event."
            )
        if self.unseen_frees:
            notes.append(
                f"Blocks allocated again without a free in between: {self.unseen_frees}; they count"
                " as freed there."
            )
        return notes

    def _next_storage(self) -> int:
        self._storages += 1
        return self._storages - 1


def lines_left_out(lines: Sequence[int]) -> Iterator[str]:
    """Say how many lines of a log could not be read, if any, and where the first of them is."""
    if lines:
        yield f"Lines that could not be read were left out: {len(lines)}, first line {lines[0]}."
