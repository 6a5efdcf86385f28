"""Tensors of a replay in, what process groups take of them out: flat, contiguous, of known types.

NCCL takes all types that matter, gloo these; others are moved as bytes. Tensors on `meta` have no
data, so memory of the host stands for them while a call lasts: communication is real there too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from et_replay.ranks.kinds import LISTS, WHOLES

Tensors = list[torch.Tensor]
Fit = Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]

_OF_GLOO = frozenset(
    (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.bool,
    )
)
_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}


@dataclass(frozen=True, slots=True)
class Wire:
    """How tensors of type `dtype` travel: as `carried`, on the host or not."""

    dtype: torch.dtype
    carried: torch.dtype
    on_host: bool

    @property
    def factor(self) -> int:
        """How many elements carry one of the tensor's."""
        return self.dtype.itemsize // self.carried.itemsize

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the same memory as it travels; new memory of the host for a `meta` tensor."""
        if tensor.device.type == "meta":
            return torch.zeros(tensor.numel() * self.factor, dtype=self.carried)
        flat = _flat(tensor)
        return flat if self.carried == self.dtype else flat.view(self.carried)


def wire_for(dtype: torch.dtype | None, on_host: bool) -> Wire:
    """Choose how tensors of a type travel."""
    dtype = torch.uint8 if dtype is None else dtype
    carried = _PARTS.get(dtype, dtype)
    if on_host and carried not in _OF_GLOO:
        carried = torch.uint8
    return Wire(dtype, carried, on_host)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous():
        return tensor.view(-1)
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):
        return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return tensor.contiguous().view(-1)


def fit_for(kind: str, size: int, present: Sequence[int]) -> Fit | None:
    """Return what cuts the tensors for a group of `size` ranks down to those `present`.

    None where all are. The parts of a whole that are kept are the first ones, of the same sizes.
    """
    if len(present) == size:
        return None
    if kind == "all_gather_coalesced":
        return lambda given, taken: (
            given,
            [taken[rank * len(given) + k] for rank in present for k in range(len(given))],
        )
    if kind in LISTS:
        sides = LISTS[kind]

        def pick(tensors: Tensors, listed: bool) -> Tensors:
            return [tensors[rank] for rank in present] if listed and tensors else tensors

        return lambda given, taken: (pick(given, sides[0]), pick(taken, sides[1]))
    if kind in WHOLES:
        wholes = WHOLES[kind]

        def cut(tensors: Tensors, whole: bool) -> Tensors:
            if not whole:
                return tensors
            return [tensor[: tensor.numel() // size * len(present)] for tensor in tensors]

        return lambda given, taken: (cut(given, wholes[0]), cut(taken, wholes[1]))
    return None


def fit_splits(in_splits: Sequence[int], out_splits: Sequence[int]) -> Fit:
    """Return what cuts the tensors of an uneven all_to_all_single down to what these add up to."""
    return lambda given, taken: (
        [given[0][: sum(in_splits)] if in_splits else given[0]],
        [taken[0][: sum(out_splits)] if out_splits else taken[0]],
    )


def fit_root(kind: str, size: int, is_root: bool) -> Fit | None:
    """Return what makes the list of a root that was none in the job."""
    if kind == "gather" and is_root:
        return lambda given, taken: (
            given,
            taken or [torch.empty_like(given[0]) for _ in range(size)],
        )
    if kind == "scatter" and is_root:
        return lambda given, taken: (
            given or [torch.zeros_like(taken[0]) for _ in range(size)],
            taken,
        )
    return None
