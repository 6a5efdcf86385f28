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
from dataclasses import dataclass

from et_replay.execution_trace import Node, Opaque, TensorRef, tensors
from et_replay.program.nesting import Nesting
from et_replay.program.overwrites import Overwrites
from et_replay.program.program import Storage, StorageKind, Tensor
from et_replay.program.sightings import Sightings, identity
from et_replay.program.storage_records import StorageRecords


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
    return tracker.generations()


class _Tracker:
    """Tells, call by call, which storage each tensor is in."""

    def __init__(
        self, nesting: Nesting, known_before: Callable[[int], bool], overwrites: Overwrites
    ) -> None:
        count = len(nesting.nodes)
        self._nesting = nesting
        self._known_before = known_before
        self._overwrites = overwrites
        self._records = StorageRecords(nesting)
        self._inputs: list[tuple[int, ...]] = []
        self._outputs: list[tuple[int, ...]] = [()] * count
        self._given: list[frozenset[int]] = [frozenset()] * count
        self._taken: list[tuple[int, ...]] = [()] * count
        self._current: dict[int, int] = {}
        self._later: Sightings | None = None

    def begin(self, i: int, node: Node) -> None:
        """See what call `i` was given."""
        self._records.begin(i)
        refs = list(tensors(node.inputs))
        if not self._nesting.operators[i]:
            self._inputs.append(tuple(self._see_label(i, ref) for ref in refs))
            return
        self._given[i] = frozenset([identity(ref) for ref in refs])
        fresh = self._fresh(i, node, refs)
        sight = self._records.sight
        given = tuple(
            [
                sight(i, ref, self._given_storage(i, ref, fresh)) if ref.defined else -1
                for ref in refs
            ]
        )
        self._inputs.append(given)
        self._taken[i] = tuple({self._records.tensors[t].storage for t in given if t >= 0})

    def end(self, i: int) -> None:
        """See what call `i` returns, and let go of what it was given."""
        records = self._records
        records.moment += 1
        self._outputs[i] = tuple(
            [
                records.sight(i, ref, self._returned_storage(i, ref)) if ref.defined else -1
                for ref in tensors(self._nesting.nodes[i].outputs)
            ]
        )
        for storage in self._taken[i]:
            records.storages[storage].died = records.moment

    def generations(self) -> Generations:
        """Return what there was, once all calls have ended."""
        records = self._records
        return Generations(
            records.storages, records.places, records.tensors, self._inputs, self._outputs
        )

    def _fresh(self, i: int, node: Node, refs: list[TensorRef]) -> frozenset[int] | None:
        """Name what call `i` is given only to overwrite; None where that cannot be known."""
        overwritten = self._overwrites(i, node)
        if overwritten is None:
            return None
        read = {identity(ref) for flat, ref in enumerate(refs) if flat not in overwritten}
        return frozenset(identity(refs[flat]) for flat in overwritten) - read

    def _given_storage(self, i: int, ref: TensorRef, fresh: frozenset[int] | None) -> int:
        key = identity(ref)
        current = self._current.get(key)
        caller = self._nesting.enclosing[i]
        if caller >= 0 and not self._visible(caller, key, current):
            if current is not None and self._is_hidden_state(i, key):
                return current
            return self._start(key, ref, StorageKind.IMPLICIT, caller)
        if fresh is not None and key in fresh:
            if current is not None and not self._is_recycled(current, ref):
                return current
            started = self._start(key, ref, StorageKind.IMPLICIT, i)
            self._records.storages[started].blank = True
            return started
        if current is not None:
            return current
        known = fresh is not None and self._nesting.nodes[i].is_kernel
        unseen = not known and self._appeared_unseen(i, key, ref)
        return self._start(key, ref, StorageKind.IMPLICIT if unseen else StorageKind.INPUT, i)

    def _returned_storage(self, i: int, ref: TensorRef) -> int:
        key = identity(ref)
        current = self._current.get(key)
        if current is not None and self._visible(i, key, current):
            storage = self._records.storages[current]
            if storage.kind is StorageKind.IMPLICIT and key not in self._given[i]:
                storage.kind = StorageKind.PRODUCED
            return current
        if current is not None and self._is_held(i, key):
            return current
        if _has_unknown_storage(self._nesting.nodes[i]):
            return self._start(key, ref, StorageKind.INPUT, i) if current is None else current
        return self._start(key, ref, StorageKind.PRODUCED, i)

    def _is_recycled(self, current: int, ref: TensorRef) -> bool:
        """Tell whether `ref`, about to be overwritten, is the first sight of another storage.

        A part of a larger storage is overwritten too, by each of those that fill it: it begins
        further in, or nothing that was seen of the storage lies where it does.
        """
        known = self._records.last_sight(ref.tensor_id)
        if known is not None and known[0] == current:
            return False
        return ref.offset == 0 and self._records.lowest_byte(current) < ref.end

    def _visible(self, call: int, key: int, current: int | None) -> bool:
        """Tell whether `call` was given `key`, or its current storage was made inside it."""
        if key in self._given[call]:
            return True
        if current is None:
            return False
        place, outermost = self._records.places[current], self._nesting.outermost
        inside = call <= place <= self._nesting.last[call]
        return inside and outermost[place] == outermost[call]

    def _is_held(self, i: int, key: int) -> bool:
        """Tell whether a caller of `i` was given `key`, so that its address cannot be recycled."""
        caller = self._nesting.enclosing[i]
        while caller >= 0:
            if key in self._given[caller]:
                return True
            caller = self._nesting.enclosing[caller]
        return False

    def _is_hidden_state(self, i: int, key: int) -> bool:
        if self._later is None:
            self._later = Sightings(self._nesting)
        caller = self._nesting.enclosing[i]
        return self._later.used_before_returned(key, i, self._nesting.last[caller])

    def _appeared_unseen(self, i: int, key: int, ref: TensorRef) -> bool:
        """Tell whether a storage that the window shows for the first time was made in it."""
        if self._nesting.nodes[i].is_kernel:
            return not self._known_before(key)
        last = self._records.last_sight(ref.tensor_id)
        if last is None:
            return False
        storage, before = last
        moved = before.shape == ref.shape and before.dtype == ref.dtype
        return moved and self._records.storages[storage].kind is not StorageKind.INPUT

    def _start(self, key: int, ref: TensorRef, kind: StorageKind, i: int) -> int:
        self._current[key] = index = self._records.start(ref, kind, i)
        return index

    def _see_label(self, i: int, ref: TensorRef) -> int:
        index = self._current.get(identity(ref)) if ref.defined else None
        return -1 if index is None else self._records.sight_on_label(i, ref, index)


def _has_unknown_storage(node: Node) -> bool:
    """Tell whether what `node` returns may lie in a storage that the trace does not identify.

    set_ puts a tensor into a storage that it is handed as such; an operator whose arguments the
    observer could not capture has none, but its schema tells whether it returns one of them.
    """
    if any(isinstance(value, Opaque) and value.kind == "Storage" for value in node.inputs):
        return True
    return not node.inputs and "(a" in node.op_schema.rpartition("->")[2]
