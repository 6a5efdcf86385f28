"""A program and a tensor allocation mode in, the allocation events of one iteration out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from et_replay.events import Action, AllocationEvents
from et_replay.program.program import Operation, Program, StorageKind
from et_replay.program.schedule import Mode, Step, schedule


def allocation_events(
    program: Program, mode: Mode, steps: list[Step] | None = None
) -> AllocationEvents:
    """List the events of one iteration of `program` in `mode`, as a replay causes them.

    In PRE_ALLOCATE the inputs are allocated before `steps[0]` of the events, and never freed. All
    events are on stream 0: a trace does not tell the stream of an operator. `steps` saves working
    out the schedule again.
    """
    steps = schedule(program, mode) if steps is None else steps
    rows = EventRows(program)
    if mode is Mode.PRE_ALLOCATE:
        for index, storage in enumerate(program.storages):
            if storage.kind is StorageKind.INPUT and program.on_device(storage):
                rows.add(Action.ALLOC, index, -1)
    for operation, step in zip(program.operations, steps, strict=True):
        rows.begin_step()
        rows.add_births(operation, step)
        rows.add_deaths(step)
    return rows.events()


class EventRows:
    """Collects the events of operations, one step each.

    `more_sizes` are the bytes of storages beyond those of the program, numbered after them.
    """

    def __init__(self, program: Program, more_sizes: Iterable[int] = ()) -> None:
        self._program = program
        self._sizes = [*(storage.size for storage in program.storages), *more_sizes]
        self._rows: list[tuple[int, int, int, int]] = []
        self._steps: list[int] = []

    def begin_step(self) -> None:
        """Let what is added from here on be that of the next operation."""
        self._steps.append(len(self._rows))

    def add(self, action: Action, storage: int, node_id: int) -> None:
        """Add one event of a storage that has a size."""
        self._rows.append((action, storage, self._sizes[storage], node_id))

    def add_births(self, operation: Operation, step: Step) -> None:
        """Add what `step` allocates, and what dies within the operation before the last birth."""
        for index in step.arrivals:
            self.add(Action.ALLOC, index, operation.node.id)
        for action, index in step.inside[: _births_end(step)]:
            storage = self._program.storages[index]
            at = storage.born_node_id if action is Action.ALLOC else storage.last_node_id
            self.add(action, index, at)

    def add_deaths(self, step: Step) -> None:
        """Add the rest of `step`: what dies after the last birth, and what departs."""
        dying = [index for _, index in step.inside[_births_end(step) :]]
        for index in (*dying, *step.departures):
            self.add(Action.FREE, index, self._program.storages[index].last_node_id)

    def events(self) -> AllocationEvents:
        """Return all that was added."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 4)
        action, storage, size, node_id = (column.copy() for column in rows.T)
        return AllocationEvents(
            action=action.astype(np.int8),
            storage=storage,
            size=size,
            stream=np.zeros(len(rows), dtype=np.int64),
            node_id=node_id,
            steps=np.array([*self._steps, len(rows)], dtype=np.int64),
        )


def _births_end(step: Step) -> int:
    births = (i for i, (action, _) in enumerate(step.inside, 1) if action is Action.ALLOC)
    return max(births, default=0)
