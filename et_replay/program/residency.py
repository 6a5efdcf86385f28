"""Which storages lazy mode keeps on the device when flushes take away what is needed later."""

from __future__ import annotations

from collections.abc import Sequence

from et_replay.events import Action
from et_replay.program.schedule import Step


class Residency:
    """Follows the storages on the device, indices of Program.storages, through one iteration."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._resident: dict[int, None] = {}
        self._flushed: set[int] = set()

    def flush(self, k: int) -> list[int]:
        """Take away all that operation `k` does not need; return it."""
        needed = set(self._steps[k].needs)
        gone = [index for index in self._resident if index not in needed]
        for index in gone:
            del self._resident[index]
        self._flushed.update(gone)
        return gone

    def arrive(self, k: int) -> tuple[list[int], list[int]]:
        """Bring what operation `k` needs; return what is new, and what a flush had taken away."""
        new = [index for index in self._steps[k].arrivals if index not in self._resident]
        again = [
            index
            for index in self._steps[k].needs
            if index in self._flushed and index not in self._resident
        ]
        self._resident.update(dict.fromkeys((*new, *again)))
        return new, again

    def leave(self, k: int) -> None:
        """Account for what operation `k` made and for what is not used after it."""
        step = self._steps[k]
        for action, index in step.inside:
            if action is Action.ALLOC:
                self._resident[index] = None
            else:
                self._resident.pop(index, None)
        for index in step.departures:
            self._resident.pop(index, None)
