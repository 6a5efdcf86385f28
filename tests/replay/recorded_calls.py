"""Recorded calls by hand, and the shortest way to run one: resolve, bind, fill, call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from et_replay.execution_trace import Node, TensorRef, Value, tensors
from et_replay.replay.arguments import bind
from et_replay.replay.conforming import conform
from et_replay.replay.dtypes import torch_dtype
from et_replay.replay.equivalents import executable
from et_replay.replay.operators import is_data_dependent, resolve
from et_replay.replay.values import fill, requirements

UNDEFINED = TensorRef(0, 0, 0, 0, 0, "", "nullptr (uninitialized)", (), ())
HOST = torch.device("cpu")


def tensor(
    *shape: int,
    dtype: str = "float",
    device: str = "cpu",
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
    itemsize: int = 4,
) -> TensorRef:
    """Return the recorded form of a tensor, dense unless `strides` says otherwise."""
    dense, step = [], 1
    for size in reversed(shape):
        dense.insert(0, step)
        step *= max(size, 1)
    numel = math.prod(shape)
    steps = tuple(dense) if strides is None else strides
    return TensorRef(2, 3, offset, numel, itemsize, device, dtype, shape, steps)


def integers(*shape: int, device: str = "cpu") -> TensorRef:
    """Return the recorded form of an int64 tensor."""
    return tensor(*shape, dtype="long int", device=device, itemsize=8)


def call(
    schema: str, *inputs: Value, outputs: Sequence[Value] = (), tensor_range: str = ""
) -> Node:
    """Return a node that recorded a call with this schema."""
    return Node(
        id=9,
        name=schema.partition("(")[0].partition(".")[0],
        parent=1,
        inputs=inputs,
        outputs=tuple(outputs),
        op_schema=schema,
        tensor_range=tensor_range,
    )


def run(node: Node, place: torch.device = HOST, seed: int = 0) -> Any:
    """Run `node` on tensors with made-up values, as a replay does."""
    overload = resolve(node)
    bound = bind(overload, node, lambda name: place)
    function = executable(overload, place.type, node)
    needed = requirements(node, overload)
    made = [
        made_up(reference, place, needed.get(index), seed + index)
        for index, reference in enumerate(tensors(node.inputs))
    ]
    args, kwargs = list(bound.args), dict(bound.kwargs)
    for position, index in bound.singles:
        args[position] = made[index]
    for position, indices in bound.lists:
        args[position] = [made[index] if index >= 0 else None for index in indices]
    for name, index in bound.keyword_singles:
        kwargs[name] = made[index]
    for name, indices in bound.keyword_lists:
        kwargs[name] = [made[index] if index >= 0 else None for index in indices]
    with torch.inference_mode():
        result = function(*args, **kwargs)
        if is_data_dependent(overload, node):
            result = conform(list(tensors(node.outputs)), result)
    return result


def made_up(
    reference: TensorRef, place: torch.device, requirement: Any, seed: int
) -> torch.Tensor | None:
    """Create the tensor that `reference` recorded."""
    if not reference.defined:
        return None
    dtype, strides = torch_dtype(reference.dtype), reference.strides or ()
    made = torch.empty_strided(reference.shape, strides, dtype=dtype, device=place)
    fill(made, requirement, seed)
    return made
