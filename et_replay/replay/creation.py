"""A tensor of a program in, the calls into torch that create it with valid values out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from et_replay.errors import ReplayError
from et_replay.program.program import Tensor
from et_replay.replay.dtypes import is_stood_for_by_bytes, torch_dtype
from et_replay.replay.requirement import Requirement
from et_replay.replay.values import filler
from et_replay.units import format_bytes

Maker = Callable[[bool], torch.Tensor]
"""Creates one tensor, on a new storage, with values or without; everything else is decided."""


def maker(
    tensor: Tensor, size: int, device: torch.device, requirement: Requirement | None, seed: int
) -> Maker:
    """Decide how `tensor` is created on a new storage of exactly `size` bytes.

    The whole storage is filled, as a tensor of this type with as many rows sees it.
    """
    dtype = created_as(tensor)
    count = size // dtype.itemsize
    rows = tensor.shape[0] if len(tensor.shape) > 1 else 0
    seen = (rows, count // rows) if rows and count % rows == 0 else (count,)
    fill = filler(dtype, device, seen, requirement, seed)
    part = None
    if _is_contiguous(tensor) and math.prod(tensor.shape) * dtype.itemsize == size:
        allocate = partial(
            torch.empty_strided, tensor.shape, tensor.strides, dtype=dtype, device=device
        )
    else:
        allocate = partial(_flat, size, dtype, device)
        part = tensor.shape, tensor.strides, tensor.offset

    def make(with_values: bool) -> torch.Tensor:
        try:
            made = allocate()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = "this machine's memory is used up; --device meta needs none"
            if device.type == "cuda":  # which may have failed before
                reason = str(error).partition("\n")[0].rstrip(".")
            raise ReplayError(
                f"Cannot allocate {format_bytes(size)} on {device}: {reason}."
            ) from error
        if with_values:
            fill(made)
        return made if part is None else made.as_strided(*part)

    return make


def view(base: torch.UntypedStorage, tensor: Tensor) -> torch.Tensor:
    """Create `tensor` on a storage that is there."""
    empty = torch.empty(0, dtype=created_as(tensor), device=base.device)
    return empty.set_(base, tensor.offset, tensor.shape, tensor.strides)


def bytes_needed(tensor: Tensor) -> int:
    """Return the bytes that a storage must have at least to hold `tensor`."""
    if 0 in tensor.shape:
        return 0
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    return (tensor.offset + extent) * max(tensor.itemsize, created_as(tensor).itemsize)


def created_as(tensor: Tensor) -> torch.dtype:
    """Return the dtype to create `tensor` in."""
    dtype = None if is_stood_for_by_bytes(tensor.dtype) else torch_dtype(tensor.dtype)
    return dtype or torch.uint8


def _is_contiguous(tensor: Tensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return tensor.offset == 0


def _flat(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Make the vector that spans a new storage of `size` bytes, as far as whole entries go."""
    count, rest = divmod(size, dtype.itemsize)
    if not rest:
        return torch.empty(count, dtype=dtype, device=device)
    base = torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
    return torch.empty(0, dtype=dtype, device=device).set_(base, 0, (count,), (1,))
