"""What our allocator served to a replay, operation by operation, in; allocation events out.

A trace of operators cannot name all that they ask a device for: scratch memory inside of kernels'
launchers, workspaces of libraries, copies. Here every request is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from et_replay import _core
from et_replay.events import Action, AllocationEvents
from et_replay.origins import MemoryClass, Origin
from et_replay.program.program import Program
from et_replay.program.requests import BEYOND, RecordedRequests
from et_replay.replay.prepared import PreparedCall, PreparedOperation, Slots, flatten

Runner = Callable[[PreparedOperation, PreparedCall], Any]


class RequestRecorder:
    """Follows what the allocator of device `index` does while the operations of `program` run.

    The last iteration that it sees is the steady one.
    """

    def __init__(self, program: Program, index: int) -> None:
        self._program = program
        self._index = index
        self._starts: list[int] = []
        self._owners: list[dict[int, int]] = [{}]
        _core.pluggable_record_trace(index, True)

    def begin_operation(self, _: int) -> None:
        """Let what is asked for from here on be that of the next operation."""
        self._starts.append(_core.pluggable_trace_length(self._index))
        self._owners.append({})

    def running(self, run: Runner, slots: Slots) -> Runner:
        """Return what runs a call by `run`, and takes in whose memory it uses."""

        def watched(operation: PreparedOperation, call: PreparedCall) -> Any:
            result = run(operation, call)
            self._note(call, result, slots)
            return result

        return watched

    def _note(self, call: PreparedCall, result: Any, slots: Slots) -> None:
        self.note_tensors(call.inputs, [slots[slot] for slot in call.inputs])
        leaves = [leaf for leaf in flatten(result) if leaf is None or _is_tensor(leaf)]
        self.note_tensors(call.outputs, leaves)

    def note_tensors(self, slots: Iterable[int], tensors: Sequence[Any]) -> None:
        """Take in whose memory these tensors of the program have."""
        owners = self._owners[-1]
        for slot, tensor in zip(slots, tensors, strict=False):
            if slot >= 0 and _is_tensor(tensor) and tensor.layout is torch.strided:
                address = tensor.untyped_storage().data_ptr()
                owners.setdefault(address, self._program.tensors[slot].storage)

    def finish(self) -> RecordedRequests:
        """Stop, and return what was recorded."""
        entries = _core.pluggable_trace(self._index)
        _core.pluggable_record_trace(self._index, False)
        log = _Log(self._program)
        bounds = [0, *self._starts, len(entries)]
        for step, owners in enumerate(self._owners):
            if step:
                log.begin_step()
            log.add_step(entries[bounds[step] : bounds[step + 1]], owners)
        return log.finish()


class _Log:
    """Rows of events, and what lives after them by address."""

    def __init__(self, program: Program) -> None:
        self._nodes = [operation.node for operation in program.operations]
        # One more than the last storage is what a simulated replay calls its workspace.
        self._next = len(program.storages) + 1
        self._others: dict[int, Origin] = {}
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._steps: list[int] = []
        self._live: dict[int, _Living] = {}
        self._live_storages: set[int] = set()

    def begin_step(self) -> None:
        """Let what is added from here on be that of the next operation."""
        self._steps.append(len(self._rows))

    def add_step(self, entries: Sequence[_core.TraceEntry], owners: dict[int, int]) -> None:
        """Add what happened in one operation; a storage is the last with its address."""
        last = {entry[1]: at for at, entry in enumerate(entries) if entry[0] == "alloc"}
        for at, (action, address, size, stream, _) in enumerate(entries):
            if action == "alloc":
                storage = owners.get(address, -1) if last[address] == at else -1
                self._allocate(address, storage, size, stream)
            elif action == "free_completed" and address in self._live:
                self._free(self._live.pop(address))

    def finish(self) -> RecordedRequests:
        """Return all that was added."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 5)
        action, storage, size, stream, node_id = (column.copy() for column in rows.T)
        steps = np.array([*self._steps[-len(self._nodes) :], len(rows)], dtype=np.int64)
        events = AllocationEvents(action.astype(np.int8), storage, size, stream, node_id, steps)
        return RecordedRequests(events, self._others)

    def _allocate(self, address: int, storage: int, size: int, stream: int) -> None:
        if storage < 0 or storage in self._live_storages:
            storage = self._next
            self._next += 1
            self._others[storage] = self._maker(MemoryClass.LIBRARY)
        self._live[address] = _Living(storage, size, stream, len(self._steps))
        self._live_storages.add(storage)
        self._add(Action.ALLOC, self._live[address])

    def _free(self, block: _Living) -> None:
        self._live_storages.discard(block.storage)
        if block.storage in self._others and block.step == len(self._steps):
            self._others[block.storage] = self._maker(MemoryClass.TEMPORARY)
        self._add(Action.FREE, block)

    def _add(self, action: Action, block: _Living) -> None:
        node_id = self._nodes[self._operation()].id if self._steps else -1
        self._rows.append((action, block.storage, block.size, block.stream, node_id))

    def _maker(self, memory_class: MemoryClass) -> Origin:
        name = self._nodes[self._operation()].name if self._steps else "before the first operation"
        return Origin(name, BEYOND, memory_class)

    def _operation(self) -> int:
        return (len(self._steps) - 1) % len(self._nodes)


class _Living(NamedTuple):
    storage: int
    size: int
    stream: int
    step: int


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
