"""What a window is made of: operations in execution order, over tensors, over storages."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from et_replay.execution_trace import ExecutionTrace, Node
from et_replay.program.window import Window


class StorageKind(enum.Enum):
    """Where a storage comes from."""

    INPUT = "input"
    """Existed before the window: weights, optimizer state, the batch."""
    PRODUCED = "produced"
    """Put out by an operator of the window."""
    IMPLICIT = "implicit"
    """Appeared inside the window without a node that made it: kernels allocate their results and
    work space directly, compiled graphs allocate before they launch, `tensor.data = …` swaps
    storages.
    """


@dataclass(slots=True)
class Storage:
    """One allocation of the original job: one generation of a storage id.

    `size` is bytes that uses prove to exist; `estimated` when one of them lacked strides.
    `operation` is the index of the operation it is born in (-1 for an input), `last_operation` of
    the last one that touches it. `born` and `died` order births and deaths against each other
    within an operation (see generations.py). `temporary` storages are born and dead within one
    operation and seen only by what that operation hides. A `blank` one is overwritten whole by the
    call that shows it first, so nothing reads what it was born with.
    """

    storage_id: int
    device: str
    kind: StorageKind
    producer: str
    operation: int
    born: int
    first_node_id: int
    born_node_id: int
    size: int = 0
    estimated: bool = False
    died: int = 0
    last_node_id: int = -1
    first_operation: int = -1
    last_operation: int = -1
    temporary: bool = True
    blank: bool = False


@dataclass(slots=True)
class Tensor:
    """One view of a storage: all sights of the same bytes in the same shape are one tensor.

    `offset` and `strides` count elements; strides are those of a contiguous tensor where the trace
    has none.
    """

    storage: int
    dtype: str
    itemsize: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    last_node_id: int = -1
    last_operation: int = -1


@dataclass(frozen=True, slots=True)
class Call:
    """A recorded call and the tensors it takes and returns.

    `inputs` and `outputs` index Program.tensors in the flattening order of
    `execution_trace.tensors`, -1 for an undefined tensor.
    """

    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """A top-level operator; `calls` is what a replay executes for it (see calls.py)."""

    call: Call
    calls: tuple[Call, ...]

    @property
    def node(self) -> Node:
        return self.call.node


@dataclass(frozen=True, eq=False)
class Program:
    """A window of a trace, understood; events describe the memory of devices of kind `device`.

    Of a part of a program (see part.py) `whole` is all of it, with the same tensors and storages.
    """

    trace: ExecutionTrace
    window: Window
    operations: Sequence[Operation]
    tensors: Sequence[Tensor]
    storages: Sequence[Storage]
    device: str
    notes: tuple[str, ...] = ()
    whole: Program | None = None

    @property
    def node_ids(self) -> tuple[int, int]:
        """The ids of the first and the last node of the window; zeros if it has none."""
        ids = self.trace.ids[self.window.begin : self.window.end]
        return (int(ids[0]), int(ids[-1])) if len(ids) else (0, 0)

    @property
    def tensor_to_last_node_id(self) -> list[int]:
        """The id of the last node that shows each tensor."""
        return [tensor.last_node_id for tensor in self.tensors]

    @property
    def storage_to_last_node_id(self) -> list[int]:
        """The id of the last node that shows each storage, which may outlive its views."""
        return [storage.last_node_id for storage in self.storages]

    def storages_of(self, tensors: Iterable[int]) -> set[int]:
        """Return the indices of the storages that tensors, by index, lie in; -1 lies in none."""
        return {self.tensors[tensor].storage for tensor in tensors if tensor >= 0}

    def on_device(self, storage: Storage) -> bool:
        """Tell whether `storage` takes memory of the device that the program's events describe.

        The oldest traces name no device; their storages are taken to be on it.
        """
        return storage.size > 0 and device_kind(storage.device) in (self.device, "")


def device_kind(device: str) -> str:
    """Drop the ordinal of a device: `cuda:3` is `cuda`."""
    return device.partition(":")[0]
