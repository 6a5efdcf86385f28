"""Integer tensors that the observer saved beside a trace, each checked before it is believed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from et_replay.execution_trace import TensorRef, is_contiguous
from et_replay.replay.dtypes import torch_dtype
from et_replay.replay.requirement import Requirement
from et_replay.replay.values import INTEGERS


class RecordedIntegers(NamedTuple):
    """Saved values of an integer tensor on the host, or None and why a file is not believed."""

    values: torch.Tensor | None
    doubt: str = ""


def recorded_integers(
    folders: Sequence[Path],
    node_id: int,
    index: int,
    tensor: TensorRef,
    requirement: Requirement | None,
) -> RecordedIntegers:
    """Read the values that the observer saved for the flat input `index` of a node.

    The observer takes an element offset for bytes and dumps storage order, so only contiguous
    tensors are believed (on the host those at offset 0), of the right length and with every value
    within `requirement`.
    """
    name = f"nid_{node_id}_tid_{index}.dat"
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    dtype = torch_dtype(tensor.dtype)
    if path is None:
        return RecordedIntegers(None)
    size = path.stat().st_size
    if dtype not in INTEGERS:
        return RecordedIntegers(None, f"{path.name} belongs to a tensor of type {tensor.dtype}")
    if size != tensor.numel * tensor.itemsize or math.prod(tensor.shape) != tensor.numel:
        expected = tensor.numel * tensor.itemsize
        return RecordedIntegers(None, f"{path.name} has {size} bytes, its tensor {expected}")
    if not _is_dumped_in_order(tensor):
        return RecordedIntegers(None, f"{path.name} holds the storage of a view, not the view")
    values = torch.from_numpy(np.fromfile(path, dtype=np.uint8)).view(dtype).reshape(tensor.shape)
    if requirement is not None and not _is_within(values, requirement):
        return RecordedIntegers(None, f"{path.name} has values outside of the valid range")
    return RecordedIntegers(values)


def _is_dumped_in_order(tensor: TensorRef) -> bool:
    begins_at_storage = tensor.offset == 0 or not tensor.device.startswith("cpu")
    return begins_at_storage and is_contiguous(tensor.shape, tensor.strides)


def _is_within(values: torch.Tensor, requirement: Requirement) -> bool:
    low, high = requirement.drawn_from
    return Requirement(low, high).admits(values)
