"""Allocations whose memory the job filled without a node, so that a replay has to."""

from __future__ import annotations

import re

from et_replay.program.program import Call, Program

_ALLOCATES = re.compile(r"aten::(new_)?empty(_like|_strided|_permuted|_quantized)?")
_OVERWRITES = re.compile(
    r"aten::(zero|fill|copy|random|uniform|normal|bernoulli|exponential|log_normal|cauchy|geometric"
    r"|resize|set)_"
)


def _overwritten(call: Call) -> tuple[int, ...]:
    """List the tensors that `call` writes whole without reading them."""
    if _OVERWRITES.fullmatch(call.node.name):
        return call.inputs[:1]
    return call.outputs if "!) out" in call.node.op_schema else ()


def storages_filled_unseen(program: Program) -> set[int]:
    """Find the storages that `aten::empty` and its kin make and an operator then reads.

    Python fills such memory behind the dispatcher's back: `torch.tensor([3, 1])` is an
    `aten::empty`, then a copy that leaves no node. Left as it is, the memory would hold what was
    there before: other values in each run, and anything but valid indices.
    """
    unseen: set[int] = set()
    next_overwrites: dict[int, bool] = {}
    for operation in reversed(program.operations):
        for call in reversed(operation.calls):
            if _ALLOCATES.fullmatch(call.node.name):
                made = program.storages_of(call.outputs)
                unseen.update(storage for storage in made if next_overwrites.get(storage) is False)
            overwritten = _overwritten(call)
            for tensor in call.inputs:
                if tensor >= 0:
                    next_overwrites[program.tensors[tensor].storage] = tensor in overwritten
    return unseen
