"""A tensor of a program in, the text of the expression that makes it with valid values out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from et_replay.execution_trace import contiguous_strides
from et_replay.program.program import Tensor
from et_replay.replay.creation import bytes_needed, created_as
from et_replay.replay.operators import Unresolvable
from et_replay.replay.requirement import Requirement
from et_replay.replay.values import INTEGERS, arranged, floats_of, integers_of

_PLAIN = (type(None), bool, int, str, torch.dtype, torch.layout, torch.memory_format)

_META = torch.device("meta")
"""As on meta, a dump stands in for quantised tensors by bytes."""

_SAVED = 1024
"""Integers saved beside a trace that a dump holds of one tensor at most, to stay short."""


def literal(value: Any, device: torch.device) -> str:
    """Write a constant argument; raises Unresolvable for one that has no text.

    The dump's own device is called DEVICE, the host beside it HOST.
    """
    if isinstance(value, torch.device):
        return "DEVICE" if value.type == device.type else "HOST"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({literal(value.real, device)}, {literal(value.imag, device)})"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(literal(entry, device) for entry in value)}]"
    if isinstance(value, _PLAIN):
        return repr(value)
    raise Unresolvable(f"an argument of type {type(value).__name__} cannot be written down")


def created(
    tensor: Tensor, size: int, host: bool, requirement: Requirement | None, seed: int, blank: bool
) -> str:
    """Write the creation of `tensor` on a new storage of `size` bytes, as creation.maker does it.

    A `blank` one is overwritten before it is read.
    """
    dtype = created_as(tensor, _META)
    size = max(size, bytes_needed(tensor))
    count = -(-size // dtype.itemsize)
    ending = ", device=HOST)" if host else ")"
    made = f"empty({count}, {dtype}" if blank else _filled(tensor, count, requirement, seed)
    shape, strides = tuple(tensor.shape), tuple(tensor.strides)
    if math.prod(shape) == count and strides == contiguous_strides(shape) and tensor.offset == 0:
        return f"{made}{ending}{'' if shape == (count,) else f'.view({shape})'}"
    place = f", {tensor.offset}" if tensor.offset else ""
    return f"{made}{ending}.as_strided({shape}, {strides}{place})"


def viewed(base: str, tensor: Tensor) -> str:
    """Write the creation of `tensor` on the storage of the tensor called `base`."""
    place = f", {tensor.offset}" if tensor.offset else ""
    return f"view({base}, {created_as(tensor, _META)}, {tensor.shape}, {tensor.strides}{place})"


def saved_entries(values: torch.Tensor) -> str | None:
    """Write the entries of a tensor that was saved beside the trace; None for too many."""
    if values.numel() > _SAVED:
        return None
    return f"torch.tensor({values.tolist()}, dtype={values.dtype})"


def _filled(tensor: Tensor, count: int, requirement: Requirement | None, seed: int) -> str:
    """Write the call that makes the vector over a storage, but for its end; as values.filler."""
    dtype = created_as(tensor, _META)
    rows = tensor.shape[0] if len(tensor.shape) > 1 else 0
    seen: Sequence[int] = (rows, count // rows) if rows and count % rows == 0 else (count,)
    if count and requirement is not None and requirement.is_arranged:
        return _in_order(count, dtype, requirement)
    if dtype.is_floating_point or dtype.is_complex:
        seen = (*seen, 2) if dtype.is_complex else seen
        real = dtype.to_real() if dtype.is_complex else dtype
        low, high = floats_of(real, tuple(seen), requirement)
        return f"uniform({count}, {dtype}, {low!r}, {high!r}, seed={seed}"
    if dtype is torch.bool:
        least, most = (0, 1) if requirement is None else integers_of(requirement, torch.uint8)
        return f"integers({count}, {dtype}, {min(least, 1)}, {min(most, 1)}, seed={seed}"
    if requirement is None or requirement.drawn_from == (None, None):
        zero = f"torch.zeros({count}, dtype={dtype}, device=DEVICE"
        return f"zeros({count}, {dtype}" if dtype not in INTEGERS else zero
    least, most = integers_of(requirement, dtype)
    return f"integers({count}, {dtype}, {least}, {most}, seed={seed}"


def _in_order(count: int, dtype: torch.dtype, requirement: Requirement) -> str:
    if requirement.total is None and not requirement.exact:
        low, high = requirement.drawn_from
        start = low or 0.0
        return f"rising({count}, {dtype}, {start!r}, {high if high is not None else start!r}"
    values = arranged(count, requirement).tolist()
    runs = [(value, sum(1 for _ in group)) for value, group in itertools.groupby(values)]
    return f"repeated({runs}, {dtype}"
