"""The calls of a window in, who is given or returns a storage when, out."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from et_replay.execution_trace import TensorRef, Value, tensors
from et_replay.program.nesting import Nesting


def identity(ref: TensorRef) -> int:
    """Name what holds the bytes of `ref`: its storage, or the tensor itself where it has none.

    All empty storages share one id, that of the null pointer, so they say nothing; tensor ids are
    mapped to negative numbers to keep them apart from storage ids.
    """
    if ref.storage_id and ref.numel and 0 not in ref.shape:
        return ref.storage_id
    return -1 - ref.tensor_id


class Sightings:
    """When operators are given each storage, or return it without having been given it."""

    def __init__(self, nesting: Nesting) -> None:
        self._sights: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        surely_given: dict[int, frozenset[int]] = {}
        for i, node in enumerate(nesting.nodes):
            if not nesting.operators[i]:
                continue
            given = frozenset(identities(node.inputs))
            caller = nesting.enclosing[i]
            surely_given[i] = given if caller < 0 else given & surely_given[caller]
            for key in surely_given[i]:
                self._sights[key].append((i, False))
            for key in frozenset(identities(node.outputs)) - given:
                self._sights[key].append((nesting.last[i], True))
        for sights in self._sights.values():
            sights.sort()

    def used_before_returned(self, key: int, now: int, end: int) -> bool:
        """Tell whether, from call `now` on, `key` is surely used after `end` before it is returned.

        That an operator is given an older storage is sure only where its callers, up to the top,
        are given it too.
        """
        sights = self._sights.get(key, [])
        for place, returned in sights[bisect_left(sights, (now, True)) :]:
            if returned:
                return False
            if place > end:
                return True
        return False


def identities(values: Iterable[Value]) -> list[int]:
    """Name what holds the bytes of each tensor among `values`."""
    return [identity(ref) for ref in tensors(values) if ref.defined]
