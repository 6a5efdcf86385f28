"""What a replay asks of its simulated device in; the allocation events of that out."""

from __future__ import annotations

from itertools import chain

import numpy as np

from et_replay.events import Action, AllocationEvents


class Journal:
    """Keeps what was asked before the first iteration, and in the one that runs.

    Every iteration starts from the same memory with an empty cache, so this is enough to run again
    what happens in any of them.
    """

    def __init__(self, events: AllocationEvents) -> None:
        self._events = events
        self._before: list[AllocationEvents | range] = []
        self._now: list[AllocationEvents | range] = []
        self._started = False

    def begin_iteration(self) -> None:
        """Forget the iteration before, and note that the cache is emptied."""
        if not self._started:
            self._before = self._now
        self._started = True
        self._now = []
        self.note(Action.EMPTY_CACHE)

    def play(self, begin: int, end: int) -> None:
        """Note the rows [begin, end) of the events."""
        self._now.append(range(begin, end))

    def note(self, action: Action, storage: int = -1, size: int = 0) -> None:
        """Note what is no row of the events."""
        self._now.append(_one_event(action, storage, size))

    def events(self) -> AllocationEvents:
        """Return all that is noted, in order; `steps` is empty."""
        parts = [
            part if isinstance(part, AllocationEvents) else _rows(self._events, part)
            for part in chain(self._before, self._now)
        ]
        columns = ("action", "storage", "size", "stream", "node_id")
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
        return AllocationEvents(**joined, steps=np.zeros(0, dtype=np.int64))


def _rows(events: AllocationEvents, rows: range) -> AllocationEvents:
    taken = slice(rows.start, rows.stop)
    return AllocationEvents(
        events.action[taken],
        events.storage[taken],
        events.size[taken],
        events.stream[taken],
        events.node_id[taken],
        steps=events.steps[:0],
    )


def _one_event(action: Action, storage: int, size: int) -> AllocationEvents:
    column = np.array([storage], dtype=np.int64)
    return AllocationEvents(
        action=np.array([action], dtype=np.int8),
        storage=column,
        size=np.array([size], dtype=np.int64),
        stream=np.zeros(1, dtype=np.int64),
        node_id=np.full(1, -1, dtype=np.int64),
        steps=column[:0],
    )
