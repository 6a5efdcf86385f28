"""Tensors as calls of a window show them in, the storages and tensors with their lives out."""

from __future__ import annotations

from et_replay.execution_trace import TensorRef, contiguous_strides
from et_replay.program.nesting import Nesting
from et_replay.program.program import Storage, StorageKind, Tensor


class StorageRecords:
    """The storages and tensors seen so far: `places` are those of the calls that made a storage.

    `moment` counts begins and ends of calls; who sees an end moves it on.
    """

    def __init__(self, nesting: Nesting) -> None:
        self.storages: list[Storage] = []
        self.places: list[int] = []
        self.tensors: list[Tensor] = []
        self.moment = 0
        self._nesting = nesting
        self._last_sight: dict[int, tuple[int, TensorRef]] = {}
        self._tensor_index: dict[tuple[object, ...], int] = {}
        self._lowest_byte: dict[int, int] = {}
        self._operation = {call: k for k, call in enumerate(nesting.top_level())}
        self._operations_begun = -1

    def begin(self, i: int) -> None:
        """Let call `i` begin."""
        self.moment += 1
        self._operations_begun = self._operation.get(i, self._operations_begun)

    def start(self, ref: TensorRef, kind: StorageKind, i: int) -> int:
        """Record a new storage, made by call `i` unless it is an input; return its index."""
        node = self._nesting.nodes[i]
        given = kind is StorageKind.INPUT
        self.storages.append(
            Storage(
                storage_id=ref.storage_id,
                device=ref.device,
                kind=kind,
                producer="" if given else node.name,
                operation=-1 if given else self._operation_of(i),
                born=0 if given else self.moment,
                first_node_id=node.id,
                born_node_id=-1 if given else node.id,
            )
        )
        self.places.append(-1 if given else i)
        return len(self.storages) - 1

    def sight(self, i: int, ref: TensorRef, index: int) -> int:
        """Record that operator `i` shows `ref` in storage `index`; return the tensor's index."""
        storage = self.storages[index]
        self._last_sight[ref.tensor_id] = (index, ref)
        tensor_index = self.sight_on_label(i, ref, index)
        if storage.temporary:
            inside = self._nesting.enclosing[i] >= 0
            storage.temporary = inside and storage.operation == self._operation_of(i)
        return tensor_index

    def sight_on_label(self, i: int, ref: TensorRef, index: int) -> int:
        """Record that label `i` carries `ref`, which proves no more than that it is alive."""
        tensor_index = self._tensor(ref, index)
        self._alive(i, self.storages[index], self.tensors[tensor_index])
        return tensor_index

    def last_sight(self, tensor_id: int) -> tuple[int, TensorRef] | None:
        """Return the storage that a tensor was last seen in, and how; None for a new one."""
        return self._last_sight.get(tensor_id)

    def lowest_byte(self, index: int) -> int:
        """Return the first byte of a storage that a tensor was seen to begin at."""
        return self._lowest_byte[index]

    def _operation_of(self, i: int) -> int:
        outermost = self._nesting.outermost[i]
        return self._operation[outermost] if outermost >= 0 else self._operations_begun

    def _alive(self, i: int, storage: Storage, tensor: Tensor) -> None:
        node_id, operation = self._nesting.nodes[i].id, self._operation_of(i)
        storage.died = self.moment
        storage.last_node_id = max(storage.last_node_id, node_id)
        storage.last_operation = max(storage.last_operation, operation)
        if storage.first_operation < 0:
            storage.first_operation = max(operation, 0)
        tensor.last_node_id = max(tensor.last_node_id, node_id)
        tensor.last_operation = max(tensor.last_operation, operation)

    def _tensor(self, ref: TensorRef, storage: int) -> int:
        key = (storage, ref.offset, ref.shape, ref.strides, ref.dtype)
        index = self._tensor_index.get(key)
        if index is None:
            index = self._tensor_index[key] = len(self.tensors)
            if ref.storage_id:
                self.storages[storage].size = max(self.storages[storage].size, ref.end)
            self.storages[storage].estimated |= ref.strides is None
            start = ref.offset * ref.itemsize
            self._lowest_byte[storage] = min(self._lowest_byte.get(storage, start), start)
            strides = ref.strides if ref.strides is not None else contiguous_strides(ref.shape)
            self.tensors.append(
                Tensor(storage, ref.dtype, ref.itemsize, ref.offset, ref.shape, strides)
            )
        return index
