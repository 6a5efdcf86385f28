"""Demands on the values of copies in, demands on what was copied out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from et_replay.program.program import Call, Program
from et_replay.replay.requirement import Requirement

_COPIES = re.compile(r"aten::(clone|contiguous|to|_to_copy|sort|msort|index_select|flip|cpu|cuda)")
"""Their first result has the entries of their first argument, some at another place."""
_SUMS = "aten::cumsum"


def pass_back(program: Program, requirements: dict[int, Requirement]) -> None:
    """Add to `requirements`, by storage, those that follow from the ones of copies.

    Lengths that are sorted, or indices that are converted, before an operator takes them have to be
    valid before that as well: zeros are valid indices, but no lengths.
    """
    for operation in reversed(program.operations):
        for call in reversed(operation.calls):
            source, result = _copied(call)
            if source < 0 or result < 0:
                continue
            storage, needed = _passed_back(program, call, source, result, requirements)
            if needed is not None and storage not in requirements:
                requirements[storage] = needed


def _copied(call: Call) -> tuple[int, int]:
    """Return which tensor a call copies, and the copy; -1 where it does no such thing."""
    if call.node.name == "aten::copy_" and len(call.inputs) > 1:
        return call.inputs[1], call.inputs[0]
    copies = call.node.name == _SUMS or _COPIES.fullmatch(call.node.name)
    return (
        (call.inputs[0], call.outputs[0]) if copies and call.inputs and call.outputs else (-1, -1)
    )


def _passed_back(
    program: Program,
    call: Call,
    source: int,
    result: int,
    requirements: Mapping[int, Requirement],
) -> tuple[int, Requirement | None]:
    one, other = program.tensors[source], program.tensors[result]
    needed = requirements.get(other.storage)
    if needed is None or one.storage == other.storage:
        return one.storage, None
    if needed.is_arranged and one.shape != other.shape:
        return one.storage, None
    if call.node.name == _SUMS:
        # Offsets are sums of lengths, which add up to the last one.
        lengths = Requirement(0, total=int(needed.high or 0)) if needed.even else None
        return one.storage, lengths
    return one.storage, replace(needed, matrix=0)
