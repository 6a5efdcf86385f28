"""A tensor of a program in, the calls into torch that create it with valid values out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from et_replay.errors import ReplayError, first_line
from et_replay.execution_trace import is_contiguous
from et_replay.program.program import Tensor
from et_replay.replay.dtypes import is_quantised, is_stood_for_by_bytes, torch_dtype
from et_replay.replay.requirement import Requirement
from et_replay.replay.values import fill, filler
from et_replay.units import format_bytes

Maker = Callable[[bool], torch.Tensor]
"""Creates one tensor, on a new storage, with values or without; everything else is decided."""


def maker(
    tensor: Tensor, size: int, device: torch.device, requirement: Requirement | None, seed: int
) -> Maker:
    """Decide how `tensor` is created on a new storage of exactly `size` bytes.

    The whole storage is filled, as a tensor of this type with as many rows sees it. Values that
    have an order are then set once more, in a tensor that skips some of the storage.
    """
    dtype = created_as(tensor, device)
    count = size // dtype.itemsize
    rows = tensor.shape[0] if len(tensor.shape) > 1 else 0
    seen = (rows, count // rows) if rows and count % rows == 0 else (count,)
    fill_all = filler(dtype, device, seen, requirement, seed)
    part = arrange = None
    dense = math.prod(tensor.shape) * dtype.itemsize == size and tensor.offset == 0
    if dense and is_contiguous(tensor.shape, tensor.strides) and not is_quantised(dtype):
        allocate = partial(
            torch.empty_strided, tensor.shape, tensor.strides, dtype=dtype, device=device
        )
    else:
        allocate = partial(_flat, size, dtype, device)
        part = tensor.shape, tensor.strides, tensor.offset
        if requirement is not None and requirement.is_arranged and _has_gaps(tensor):
            arrange = requirement

    def make(with_values: bool) -> torch.Tensor:
        made = _allocated(allocate, size, device)
        if with_values:
            fill_all(made)
        if part is not None:
            made = made.as_strided(*part)
        if with_values and arrange is not None:
            fill(made, arrange, seed)
        return made

    return make


def _allocated(
    allocate: Callable[[], torch.Tensor], size: int, device: torch.device
) -> torch.Tensor:
    try:
        return allocate()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = "this machine's memory is used up; --device meta needs none"
        if device.type == "cuda":  # which may have failed before
            reason = first_line(error)
        raise ReplayError(f"Cannot allocate {format_bytes(size)} on {device}: {reason}.") from error


def view(base: torch.UntypedStorage, tensor: Tensor) -> torch.Tensor:
    """Create `tensor` on a storage that is there."""
    empty = _empty(0, created_as(tensor, base.device), base.device)
    return empty.set_(base, tensor.offset, tensor.shape, tensor.strides)


def bytes_needed(tensor: Tensor) -> int:
    """Return the bytes that a storage must have at least to hold `tensor`."""
    if 0 in tensor.shape:
        return 0
    extent = _extent(tensor)
    dtype = torch_dtype(tensor.dtype) or torch.uint8
    return (tensor.offset + extent) * max(tensor.itemsize, dtype.itemsize)


def created_as(tensor: Tensor, device: torch.device) -> torch.dtype:
    """Return the dtype to create `tensor` in."""
    as_bytes = is_stood_for_by_bytes(tensor.dtype, device.type)
    return (None if as_bytes else torch_dtype(tensor.dtype)) or torch.uint8


def _extent(tensor: Tensor) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))


def _has_gaps(tensor: Tensor) -> bool:
    """Tell whether there is something between the entries that is not the tensor's."""
    return 0 not in tensor.shape and _extent(tensor) > math.prod(tensor.shape)


def _flat(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Make the vector that spans a new storage of `size` bytes, as far as whole entries go."""
    count, rest = divmod(size, dtype.itemsize)
    if not rest:
        return _empty(count, dtype, device)
    base = torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
    return _empty(0, dtype, device).set_(base, 0, (count,), (1,))


def _empty(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Make a vector; no trace holds the scale of a quantised one, which is 1 here."""
    if is_quantised(dtype):
        settings: dict[str, Any] = {"scale": 1.0, "zero_point": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They are deprecated, but the job had them.
            return torch._empty_affine_quantized([count], dtype=dtype, device=device, **settings)
    return torch.empty(count, dtype=dtype, device=device)
