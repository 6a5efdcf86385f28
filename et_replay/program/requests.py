"""What a replay really asked a device for, as allocation events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from et_replay.events import Action, AllocationEvents, Int64Array
from et_replay.origins import Origin

BEYOND = ("beyond the trace",)
"""What encloses the makers of storages that no node of a trace shows."""


@dataclass(frozen=True, eq=False)
class RecordedRequests:
    """The events of a steady iteration, a step for each operation, behind those of all before it.

    Storages of the program have their index in it; the others come after them, one number more for
    each request, and `others` names the operation that asked: an operator's own are freed within
    it, a library's are kept.
    """

    events: AllocationEvents
    others: dict[int, Origin]

    def passing(self) -> AllocationEvents:
        """Return what the steady iteration asks for and frees again."""
        made: dict[int, int] = {}
        rows: list[int] = []
        for row in range(int(self.events.steps[0]), len(self.events)):
            storage = int(self.events.storage[row])
            if self.events.action[row] == Action.ALLOC:
                made[storage] = row
            elif storage in made:
                rows += (made.pop(storage), row)
        return _rows(self.events, np.array(sorted(rows), dtype=np.int64))

    def lasting_and_steady(self) -> AllocationEvents:
        """Return the steady iteration, and of all before it only what lives on when it begins."""
        begin = int(self.events.steps[0])
        living: dict[int, int] = {}
        for row in range(begin):
            if self.events.action[row] == Action.ALLOC:
                living[int(self.events.storage[row])] = row
            else:
                living.pop(int(self.events.storage[row]), None)
        rows = [*living.values(), *range(begin, len(self.events))]
        return _rows(self.events, np.array(rows, dtype=np.int64))


def _rows(events: AllocationEvents, rows: Int64Array) -> AllocationEvents:
    return AllocationEvents(
        action=events.action[rows],
        storage=events.storage[rows],
        size=events.size[rows],
        stream=events.stream[rows],
        node_id=events.node_id[rows],
        steps=np.searchsorted(rows, events.steps),
    )
