"""A recorded collective in, which of its tensors go in and which come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from et_replay.execution_trace import TensorRef, tensors
from et_replay.program.argument_names import argument_names
from et_replay.program.communication import RECORD
from et_replay.program.program import Call
from et_replay.ranks.argument_sides import comes_out, goes_in
from et_replay.ranks.kinds import BARRIERS, RECEIVE, SEND


@dataclass(frozen=True)
class Buffers:
    """Slots of the tensors that a call is `given`, and of those that it writes to, `taken`.

    Where it writes to none of its arguments, `made` are its results, to be made for it.
    """

    given: tuple[int, ...]
    taken: tuple[int, ...]
    made: tuple[TensorRef, ...] = ()

    @property
    def slots(self) -> tuple[int, ...]:
        """List each slot once."""
        return tuple(dict.fromkeys((*self.given, *self.taken)))


def buffers_of(call: Call, kind: str) -> Buffers:
    """Tell the arguments of `call` by their names, which the form of the call is known by."""
    node = call.node
    if kind in BARRIERS:
        return Buffers((), ())
    results = [ref for ref in tensors(node.outputs) if ref.defined]
    if node.name == RECORD:
        return Buffers(_filled(call.inputs), _filled(call.outputs))
    given: list[int] = []
    taken: list[int] = []
    in_place = node.name.endswith("_") and not node.name.startswith("c10d::")
    at = 0
    for name, value in zip(argument_names(node.op_schema), node.inputs, strict=False):
        count = sum(1 for _ in tensors((value,)))
        slots = call.inputs[at : at + count]
        at += count
        if comes_out(name) or (in_place and name.startswith("in")):
            taken += slots
        if goes_in(name):
            given += slots
    made = () if taken or kind == SEND else tuple(results)
    return Buffers(
        () if kind == RECEIVE and not made else _filled(given),
        () if kind == SEND else _filled(taken),
        made,
    )


def written_by(call: Call, kind: str) -> tuple[int, ...]:
    """List the slots of what `call` writes to."""
    found = buffers_of(call, kind)
    return call.outputs if found.made else found.taken


def _filled(slots: Iterable[int]) -> tuple[int, ...]:
    return tuple(slot for slot in slots if slot >= 0)
