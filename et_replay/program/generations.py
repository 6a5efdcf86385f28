"""Calls over recycled storage ids in, the storages and tensors that there really were out.

A storage id is an address, and the caching allocator hands addresses out again as soon as they are
free: in a training step one id stands for up to hundreds of allocations. Frees are not recorded.
What tells two *generations* of an id apart is who could have seen them:

* An operator that returns an id it was not given has allocated it, in the kernel or through an
  operator that it called. The innermost operator to return it is the producer; that the enclosing
  ones return it as well is the same event, which shows by the generation having begun after the
  enclosing operator did.
* An operator sees only what it was given and what was made inside it. So when an operator takes an
  id that its caller neither was given nor made, the caller's kernel has allocated it without a node
  (most kernels do), even where the id was that of another storage a moment ago. The one exception
  is hidden state, such as packed weights: there the same id is used again later, outside and
  without a producer, which a recycled address hardly ever is.
* At top level anything may be seen. An unknown id there was there before the window: an input.
  Unless a generated kernel is the first in the whole trace to see it, as compiled graphs allocate
  without nodes; or its tensor was seen before, in a storage that the window made, so that the
  storage was swapped (`.data =`, `untyped_storage().resize_`). A tensor that was seen in an input
  proves nothing: tensor ids are recycled too, by every `.data` for one.
* What a call of a compiled graph overwrites whole without reading it (see overwrites.py) was
  allocated for it, if the id is new in the window, or was that of another storage before: another
  tensor that begins at the same address. Graphs are given no memory to put their results in.

                         id 7 as the trace shows it     generations of id 7
    aten::mm             -> 7                           A begins
    aten::relu           7 -> 9                         A is last used
    aten::nll_loss_backward  -> 7                       returns it without having been given it
      aten::zero_        7 -> 7                         B begins: only its caller can have made it

Moments order births and deaths: a call begins, then the calls below it run, then it ends. What an
operator was given stays alive until it ends; what its kernel allocates is born when a call below is
first given it, or when the operator ends and returns it. Labels (autograd nodes and the like) prove
that what they carry is alive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from et_replay.execution_trace import (
    Node,
    Opaque,
    TensorRef,
    contiguous_strides,
    tensors,
)
from et_replay.program.nesting import Nesting
from et_replay.program.overwrites import Overwrites
from et_replay.program.program import Storage, StorageKind, Tensor
from et_replay.program.sightings import Sightings, identity


@dataclass(frozen=True)
class Generations:
    """Storages and tensors of a window, and which of them each node takes and returns.

    `places` holds for each storage the place of the call that it is born in, -1 for an input.
    """

    storages: list[Storage]
    places: list[int]
    tensors: list[Tensor]
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]]


def trace_generations(
    nesting: Nesting,
    known_before: Callable[[int], bool],
    overwrites: Overwrites,
) -> Generations:
    """Follow every storage id through the window.

    `known_before` tells whether the trace shows a storage id before the window, `overwrites` which
    of its inputs a call writes whole without reading them.
    """
    tracker = _Tracker(nesting, known_before, overwrites)
    ending: dict[int, list[int]] = defaultdict(list)
    for i, node in enumerate(nesting.nodes):
        tracker.begin(i, node)
        if nesting.operators[i]:
            ending[nesting.last[i]].append(i)
        for call in reversed(ending.pop(i, ())):
            tracker.end(call)
    return Generations(
        tracker.storages, tracker.places, tracker.tensors, tracker.inputs, tracker.outputs
    )


@dataclass
class _Tracker:
    nesting: Nesting
    known_before: Callable[[int], bool]
    overwrites: Overwrites
    storages: list[Storage] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    outputs: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.nesting.nodes)
        self._moment = 0
        self._began = [0] * count
        self._given: list[frozenset[int]] = [frozenset()] * count
        self._taken: list[tuple[int, ...]] = [()] * count
        self._current: dict[int, int] = {}
        self._last_sight: dict[int, tuple[int, TensorRef]] = {}
        self._tensor_index: dict[tuple[object, ...], int] = {}
        self._lowest_byte: dict[int, int] = {}
        self._later: Sightings | None = None
        self._operation = {call: k for k, call in enumerate(self.nesting.top_level())}
        self._operations_begun = -1
        self.outputs = [()] * count

    def begin(self, i: int, node: Node) -> None:
        """See what call `i` was given."""
        self._moment += 1
        self._began[i] = self._moment
        self._operations_begun = self._operation.get(i, self._operations_begun)
        refs = list(tensors(node.inputs))
        if not self.nesting.operators[i]:
            self.inputs.append(tuple(self._see_label(i, ref) for ref in refs))
            return
        self._given[i] = frozenset([identity(ref) for ref in refs])
        fresh = self._fresh(i, node, refs)
        self.inputs.append(
            tuple(
                [
                    self._sight(i, ref, self._given_storage(i, ref, fresh)) if ref.defined else -1
                    for ref in refs
                ]
            )
        )
        self._taken[i] = tuple({self.tensors[t].storage for t in self.inputs[i] if t >= 0})

    def end(self, i: int) -> None:
        """See what call `i` returns, and let go of what it was given."""
        self._moment += 1
        node = self.nesting.nodes[i]
        self.outputs[i] = tuple(
            [
                self._sight(i, ref, self._returned_storage(i, ref)) if ref.defined else -1
                for ref in tensors(node.outputs)
            ]
        )
        for storage in self._taken[i]:
            self.storages[storage].died = self._moment

    def _fresh(self, i: int, node: Node, refs: list[TensorRef]) -> frozenset[int] | None:
        """Name what call `i` is given only to overwrite; None where that cannot be known."""
        overwritten = self.overwrites(i, node)
        if overwritten is None:
            return None
        read = {identity(ref) for flat, ref in enumerate(refs) if flat not in overwritten}
        return frozenset(identity(refs[flat]) for flat in overwritten) - read

    def _given_storage(self, i: int, ref: TensorRef, fresh: frozenset[int] | None) -> int:
        key = identity(ref)
        current = self._current.get(key)
        caller = self.nesting.enclosing[i]
        if caller >= 0 and not self._visible(caller, key, current):
            if current is not None and self._is_hidden_state(i, key):
                return current
            return self._start(key, ref, StorageKind.IMPLICIT, caller)
        if fresh is not None and key in fresh:
            if current is not None and not self._is_recycled(current, ref):
                return current
            started = self._start(key, ref, StorageKind.IMPLICIT, i)
            self.storages[started].blank = True
            return started
        if current is not None:
            return current
        known = fresh is not None and self.nesting.nodes[i].is_kernel
        unseen = not known and self._appeared_unseen(i, key, ref)
        return self._start(key, ref, StorageKind.IMPLICIT if unseen else StorageKind.INPUT, i)

    def _returned_storage(self, i: int, ref: TensorRef) -> int:
        key = identity(ref)
        current = self._current.get(key)
        if current is not None and self._visible(i, key, current):
            storage = self.storages[current]
            if storage.kind is StorageKind.IMPLICIT and key not in self._given[i]:
                storage.kind = StorageKind.PRODUCED
            return current
        if current is not None and self._is_held(i, key):
            return current
        if _has_unknown_storage(self.nesting.nodes[i]):
            return self._start(key, ref, StorageKind.INPUT, i) if current is None else current
        return self._start(key, ref, StorageKind.PRODUCED, i)

    def _is_recycled(self, current: int, ref: TensorRef) -> bool:
        """Tell whether `ref`, about to be overwritten, is the first sight of another storage.

        A part of a larger storage is overwritten too, by each of those that fill it: it begins
        further in, or nothing that was seen of the storage lies where it does.
        """
        known = self._last_sight.get(ref.tensor_id)
        if known is not None and known[0] == current:
            return False
        return ref.offset == 0 and self._lowest_byte[current] < ref.end

    def _visible(self, call: int, key: int, current: int | None) -> bool:
        """Tell whether `call` was given `key`, or its current storage was made inside it."""
        if key in self._given[call]:
            return True
        if current is None:
            return False
        place, outermost = self.places[current], self.nesting.outermost
        inside = call <= place <= self.nesting.last[call]
        return inside and outermost[place] == outermost[call]

    def _is_held(self, i: int, key: int) -> bool:
        """Tell whether a caller of `i` was given `key`, so that its address cannot be recycled."""
        caller = self.nesting.enclosing[i]
        while caller >= 0:
            if key in self._given[caller]:
                return True
            caller = self.nesting.enclosing[caller]
        return False

    def _is_hidden_state(self, i: int, key: int) -> bool:
        if self._later is None:
            self._later = Sightings(self.nesting)
        caller = self.nesting.enclosing[i]
        return self._later.used_before_returned(key, i, self.nesting.last[caller])

    def _appeared_unseen(self, i: int, key: int, ref: TensorRef) -> bool:
        """Tell whether a storage that the window shows for the first time was made in it."""
        if self.nesting.nodes[i].is_kernel:
            return not self.known_before(key)
        last = self._last_sight.get(ref.tensor_id)
        if last is None:
            return False
        storage, before = last
        moved = before.shape == ref.shape and before.dtype == ref.dtype
        return moved and self.storages[storage].kind is not StorageKind.INPUT

    def _start(self, key: int, ref: TensorRef, kind: StorageKind, i: int) -> int:
        node = self.nesting.nodes[i]
        given = kind is StorageKind.INPUT
        storage = Storage(
            storage_id=ref.storage_id,
            device=ref.device,
            kind=kind,
            producer="" if given else node.name,
            operation=-1 if given else self._operation_of(i),
            born=0 if given else self._moment,
            first_node_id=node.id,
            born_node_id=-1 if given else node.id,
        )
        self._current[key] = len(self.storages)
        self.storages.append(storage)
        self.places.append(-1 if given else i)
        return self._current[key]

    def _operation_of(self, i: int) -> int:
        outermost = self.nesting.outermost[i]
        return self._operation[outermost] if outermost >= 0 else self._operations_begun

    def _sight(self, i: int, ref: TensorRef, index: int) -> int:
        """Record that call `i` shows `ref` in storage `index`; return the tensor's index."""
        storage = self.storages[index]
        self._last_sight[ref.tensor_id] = (index, ref)
        tensor_index = self._tensor(ref, index)
        self._alive(i, storage, self.tensors[tensor_index])
        if storage.temporary:
            storage.temporary = self.nesting.enclosing[
                i
            ] >= 0 and storage.operation == self._operation_of(i)
        return tensor_index

    def _see_label(self, i: int, ref: TensorRef) -> int:
        index = self._current.get(identity(ref)) if ref.defined else None
        if index is None:
            return -1
        tensor_index = self._tensor(ref, index)
        self._alive(i, self.storages[index], self.tensors[tensor_index])
        return tensor_index

    def _alive(self, i: int, storage: Storage, tensor: Tensor) -> None:
        node_id, operation = self.nesting.nodes[i].id, self._operation_of(i)
        storage.died = self._moment
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


def _has_unknown_storage(node: Node) -> bool:
    """Tell whether what `node` returns may lie in a storage that the trace does not identify.

    set_ puts a tensor into a storage that it is handed as such; an operator whose arguments the
    observer could not capture has none, but its schema tells whether it returns one of them.
    """
    if any(isinstance(value, Opaque) and value.kind == "Storage" for value in node.inputs):
        return True
    return not node.inputs and "(a" in node.op_schema.rpartition("->")[2]
