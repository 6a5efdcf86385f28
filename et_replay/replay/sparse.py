"""What a trace shows of sparse tensors in, such tensors with made-up entries out."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from et_replay.execution_trace import TensorRef
from et_replay.program.program import Program, Tensor
from et_replay.replay.creation import Maker, created_as
from et_replay.replay.values import fill

_INDICES = ("aten::_indices", "aten::indices")


class Entries(NamedTuple):
    """Of a sparse tensor, how many dimensions number its entries, and how many these are."""

    dimensions: int
    number: int


Kind = tuple[str, tuple[int, ...]]


def is_sparse(tensor: Tensor) -> bool:
    """Tell whether a tensor was recorded without storage: its indices and values have their own."""
    return tensor.itemsize == 0


def recorded_entries(program: Program) -> dict[Kind, Entries]:
    """Find by type and shape what the window shows of the indices of sparse tensors.

    A trace holds nothing of them but where an operator takes them out.
    """
    found: dict[Kind, Entries] = {}
    window, trace = program.window, program.trace
    for position in range(window.begin, window.end):
        if trace.names[position] in _INDICES:
            node = trace.node(position)
            for given, indices in zip(node.inputs[:1], node.outputs[:1], strict=False):
                if isinstance(given, TensorRef) and isinstance(indices, TensorRef):
                    entries = Entries(*indices.shape) if len(indices.shape) == 2 else None
                    if entries is not None:
                        found.setdefault((given.dtype, given.shape), entries)
    return found


def sparse_maker(tensor: Tensor, entries: Entries | None, device: torch.device, seed: int) -> Maker:
    """Decide how `tensor` is created: with these entries, or one for each row."""
    dimensions, count = entries or Entries(len(tensor.shape), max((*tensor.shape[:1], 1)))
    numbered, dense = tensor.shape[:dimensions], tensor.shape[dimensions:]
    places = math.prod(numbered)
    count = count if places else 0

    def make(with_values: bool) -> torch.Tensor:
        values = torch.empty((count, *dense), dtype=created_as(tensor, device), device=device)
        if with_values:
            fill(values, None, seed)
        flat = torch.arange(count, device=device) * places // max(count, 1)
        indices = torch.stack(torch.unravel_index(flat, numbered)) if numbered else flat[None][:0]
        made = torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=False)
        return made._coalesced_(count <= places)

    return make
