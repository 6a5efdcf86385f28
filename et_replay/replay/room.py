"""Room on the device before each operation: flushes, arrivals and re-creations."""

from __future__ import annotations

from collections.abc import Sequence

from et_replay.program.program import Program
from et_replay.program.residency import Residency
from et_replay.program.schedule import Step
from et_replay.replay.memory import DeviceMemory
from et_replay.replay.result import Flushes
from et_replay.replay.tensor_store import TensorStore


class Room:
    """One iteration's flushes.

    Before an operation, when allocated / device memory is above the threshold, everything that the
    operation does not need is freed. What a later operation needs is created again when that
    operation comes.
    """

    def __init__(
        self,
        program: Program,
        steps: Sequence[Step],
        memory: DeviceMemory,
        store: TensorStore,
        threshold: float,
    ) -> None:
        self.flushes = Flushes()
        self._storages = program.storages
        self._residency = Residency(steps)
        self._memory = memory
        self._store = store
        self._limit = threshold * memory.capacity

    def step(self, k: int) -> None:
        """Make room for operation `k`, then let it take and leave its memory."""
        gone = self._residency.flush(k) if self._memory.allocated > self._limit else []
        self._memory.free(gone)
        self._store.drop(gone)
        new, again = self._residency.arrive(k)
        for storage in (*again, *new):
            self._memory.allocate(storage)
        if gone or again:
            self._count(gone, again)
        self._memory.step_inside(k)
        self._residency.leave(k)

    def _count(self, gone: list[int], again: list[int]) -> None:
        so_far = self.flushes
        self.flushes = Flushes(
            so_far.count + bool(gone),
            so_far.freed + sum(self._storages[storage].size for storage in gone),
            so_far.recreated + sum(self._storages[storage].size for storage in again),
        )
