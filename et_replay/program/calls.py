"""A top-level operator in, the recorded calls that replay executes for it out.

Executing an operator re-creates what it returns. Two kinds of operator hide something that the
rest of the program needs, so replay executes the calls below them instead, which is what the
original job did as well:

* Composite operators of an autograd job: `aten::layer_norm` returns one tensor, but the backward
  pass takes the mean and the deviation that `aten::native_layer_norm` below it put out.
* Autocast: `aten::linear` on float tensors calls `aten::to`, whose results later calls share
  through the autocast cache, and then itself on bfloat16 tensors. Executed as such it would
  compute, and allocate, in float.

A collective is one call, whatever its process group calls to prepare it; a batch of messages is as
many calls.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from itertools import islice, takewhile

from et_replay.program.generations import Generations
from et_replay.program.nesting import Nesting
from et_replay.program.program import Call

_ALLOCATES = re.compile(r"aten::(new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?")
_BATCH = "::batch_p2p_ops"


class CallChooser:
    """Chooses the calls to execute for each top-level operator of a window."""

    def __init__(self, nesting: Nesting, generations: Generations) -> None:
        self._nesting = nesting
        self._generations = generations
        self._last_use = _last_uses(nesting, generations)
        self._births = sorted(
            (place, storage) for storage, place in enumerate(generations.places) if place >= 0
        )

    def call(self, i: int) -> Call:
        """Make the call at place `i`."""
        return Call(
            self._nesting.nodes[i], self._generations.inputs[i], self._generations.outputs[i]
        )

    def choose(self, top_level: int) -> tuple[Call, tuple[Call, ...]]:
        """Make the call at place `top_level`, and list those that replay executes for it."""
        whole = self.call(top_level)
        chosen: list[Call] = []
        pending = [top_level]
        while pending:
            i = pending.pop()
            children = list(self._nesting.children(i)) if self._nesting.last[i] > i else []
            if self._is_made_of(i, children):
                pending.extend(reversed(children))
            else:
                chosen.append(whole if i == top_level else self.call(i))
        return whole, tuple(chosen)

    def _is_made_of(self, i: int, children: list[int]) -> bool:
        """Tell whether replay executes the calls below call `i` in its place."""
        node = self._nesting.nodes[i]
        if node.is_collective:
            return node.name.endswith(_BATCH)
        return (
            bool(children)
            and self._hides_something(i, children)
            and self._is_composite(i, children)
        )

    def _hides_something(self, i: int, children: list[int]) -> bool:
        schema = self._nesting.nodes[i].op_schema
        if any(self._nesting.nodes[child].op_schema == schema for child in children):
            return True
        returned, end = self._storages(self._generations.outputs[i]), self._nesting.last[i]
        begin = bisect_left(self._births, (i, -1))
        return any(
            self._last_use[storage] > end and storage not in returned
            for _, storage in takewhile(
                lambda birth: birth[0] <= end, islice(self._births, begin, None)
            )
        )

    def _is_composite(self, i: int, children: list[int]) -> bool:
        """Tell whether the calls below `i` do all of its work.

        A kernel calls operators too, to allocate or to fill what it has allocated; it shows by a
        child that takes what the kernel itself has made, or by results that come from no child or
        from mere allocations, however these are filled, viewed or copied.
        """
        known = self._storages(self._generations.inputs[i])
        computed = set(known)
        for child in children:
            given = self._storages(self._generations.inputs[child])
            if not given <= known:
                return False
            returned = self._storages(self._generations.outputs[child])
            known |= returned
            flows = given & computed or not given
            if flows and not _ALLOCATES.fullmatch(self._name(child)):
                computed |= returned
        return self._storages(self._generations.outputs[i]) <= computed

    def _name(self, i: int) -> str:
        return self._nesting.nodes[i].name

    def _storages(self, tensors: tuple[int, ...]) -> set[int]:
        return {self._generations.tensors[t].storage for t in tensors if t >= 0}


def _last_uses(nesting: Nesting, generations: Generations) -> dict[int, int]:
    """Map each storage to the place of the last operator that is given it."""
    last: dict[int, int] = {}
    for i, is_operator in enumerate(nesting.operators):
        if is_operator:
            for tensor in generations.inputs[i]:
                if tensor >= 0:
                    last[generations.tensors[tensor].storage] = i
    return defaultdict(lambda: -1, last)
