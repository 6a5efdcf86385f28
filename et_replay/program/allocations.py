"""A program and a tensor allocation mode in, the allocation events of one iteration out."""

from __future__ import annotations

import numpy as np

from et_replay.events import Action, AllocationEvents
from et_replay.program.program import Program, StorageKind
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
    rows = _Rows(program)
    if mode is Mode.PRE_ALLOCATE:
        for index, storage in enumerate(program.storages):
            if storage.kind is StorageKind.INPUT and program.on_device(storage):
                rows.add(Action.ALLOC, index, -1)
    starts = []
    for operation, step in zip(program.operations, steps, strict=True):
        starts.append(len(rows.storage))
        for index in step.arrivals:
            rows.add(Action.ALLOC, index, operation.node.id)
        for action, index in step.inside:
            storage = program.storages[index]
            at = storage.born_node_id if action is Action.ALLOC else storage.last_node_id
            rows.add(action, index, at)
        for index in step.departures:
            rows.add(Action.FREE, index, program.storages[index].last_node_id)
    return rows.events([*starts, len(rows.storage)])


class _Rows:
    def __init__(self, program: Program) -> None:
        self._sizes = [storage.size for storage in program.storages]
        self.action: list[int] = []
        self.storage: list[int] = []
        self.size: list[int] = []
        self.node_id: list[int] = []

    def add(self, action: Action, storage: int, node_id: int) -> None:
        self.action.append(action)
        self.storage.append(storage)
        self.size.append(self._sizes[storage])
        self.node_id.append(node_id)

    def events(self, steps: list[int]) -> AllocationEvents:
        return AllocationEvents(
            action=np.array(self.action, dtype=np.int8),
            storage=np.array(self.storage, dtype=np.int64),
            size=np.array(self.size, dtype=np.int64),
            stream=np.zeros(len(self.action), dtype=np.int64),
            node_id=np.array(self.node_id, dtype=np.int64),
            steps=np.array(steps, dtype=np.int64),
        )
