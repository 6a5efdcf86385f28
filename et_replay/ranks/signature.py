"""A call of one rank in; what all ranks of the group must have alike out, and what is wrong alone.

`n` below is the number of ranks in the group:

    all_reduce, broadcast, reduce    as many elements on all ranks
    all_gather(_into_tensor)         out = n * in, and of a list the part of this rank = in
    reduce_scatter(_tensor)          in = n * out, and of a list the part of this rank = out
    gather, scatter                  n parts on the root, each as large as that of every rank
    all_to_all(_single)              n parts in and n out; those of pairs of ranks are matched later
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from et_replay.ranks.collective import Collective
from et_replay.ranks.kinds import TO_ALL

_PLAIN = {"long": "long int", "short": "short int"}
"""Names that older traces have for a type."""
_BY_INPUT = frozenset({"all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "gather"})
_BY_OUTPUT = frozenset({"scatter", "reduce_scatter_tensor"})
_BY_INPUTS = frozenset(
    {
        "all_reduce_coalesced",
        "all_gather_coalesced",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter",
    }
)
_BY_OUTPUTS = frozenset({"all_gather", "reduce_scatter_tensor_coalesced"})
_GROWING = frozenset({"all_gather_into_tensor", "all_gather_into_tensor_coalesced"})
_SHRINKING = frozenset({"reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"})


class Signature(NamedTuple):
    """What all ranks of a group must have alike of a call; `sizes` are elements.

    A `reduction` that is not told fits any.
    """

    kind: str
    dtype: str = ""
    sizes: tuple[int, ...] = ()
    root: int | None = None
    reduction: str | None = None

    @property
    def without_reduction(self) -> Signature:
        """What of it every trace tells."""
        return self._replace(reduction=None)

    def __str__(self) -> str:
        text = self.kind
        if len(self.sizes) == 1:
            text += f" of {self.sizes[0]} {self.dtype}"
        elif self.sizes:
            text += f" of {sum(self.sizes)} {self.dtype} in {len(self.sizes)} tensors"
        elif self.dtype:
            text += f" of {self.dtype}"
        if self.reduction is not None:
            text += f" with reduction {self.reduction}"
        return text if self.root is None else f"{text} with root {self.root}"


def signature(call: Collective) -> Signature:
    """Return what the same call has alike on all ranks; a coalesced call of one tensor is plain."""
    kind = call.kind
    if kind.endswith("_coalesced") and len(call.in_sizes) == len(call.out_sizes) == 1:
        kind = kind.removesuffix("_coalesced")
    reduction = call.reduction.lower() if call.reduction else None
    return Signature(kind, dtype_of(call), _sizes(kind, call), call.root, reduction)


def dtype_of(call: Collective) -> str:
    """Return the type by one name, whatever the version of the trace."""
    return _PLAIN.get(call.dtype, call.dtype)


def parts_of(call: Collective, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return how many elements an all_to_all sends to each rank of the group, and gets of each."""
    if call.kind == "all_to_all":
        return call.in_sizes, call.out_sizes
    given = call.in_splits or (call.in_elements // count,) * count
    return given, call.out_splits or (call.out_elements // count,) * count


def fault_of(call: Collective, count: int, rank: int) -> str:
    """Say what of a call fits no group of `count` ranks, this rank being `rank` of it; else ""."""
    if call.root is not None and not 0 <= call.root < count:
        return f"the root is rank {call.root} of a group of {count}"
    if not call.dtype:  # nothing is told of the tensors
        return ""
    if call.kind in TO_ALL:
        return _fault_of_parts(call, count)
    if call.kind in _GROWING:
        return _unequal("output", _total(call, "out"), "input", _total(call, "in"), count)
    if call.kind in _SHRINKING:
        return _unequal("input", _total(call, "in"), "output", _total(call, "out"), count)
    if call.kind == "all_gather_coalesced":
        return _unequal("output", (call.out_elements,), "input", (call.in_elements,), count)
    return _fault_of_lists(call, count, rank)


def _sizes(kind: str, call: Collective) -> tuple[int, ...]:
    if kind in _BY_INPUT:
        return (call.in_elements,)
    if kind in _BY_OUTPUT:
        return (call.out_elements,)
    if kind in _BY_INPUTS:
        return call.in_sizes
    return call.out_sizes if kind in _BY_OUTPUTS else ()


def _total(call: Collective, side: str) -> tuple[int, ...]:
    """Return the elements of each tensor."""
    if side == "in":
        return call.in_sizes or (call.in_elements,)
    return call.out_sizes or (call.out_elements,)


def _unequal(
    whole: str, sizes: tuple[int, ...], part: str, parts: tuple[int, ...], count: int
) -> str:
    if sizes == tuple(size * count for size in parts):
        return ""
    return (
        f"the {whole} has {sum(sizes)} elements and the {part} {sum(parts)},"
        f" expected {count} times as many for {count} ranks"
    )


def _fault_of_lists(call: Collective, count: int, rank: int) -> str:
    """Check the list of one part a rank, which gather and scatter have on the root alone."""
    lists = {"all_gather": "output", "gather": "output", "reduce_scatter": "input"}
    side = lists.get(call.kind, "input" if call.kind == "scatter" else "")
    if not side or (call.root is not None and call.root != rank):
        return ""
    parts, own = (
        (call.out_sizes, call.in_elements)
        if side == "output"
        else (
            call.in_sizes,
            call.out_elements,
        )
    )
    if len(parts) != count:
        return f"the {side} has {len(parts)} parts, expected one for each of {count} ranks"
    if parts[rank] != own:
        return f"the {side}'s part for this rank has {parts[rank]} elements, expected {own}"
    if call.root is not None and set(parts) != {own}:
        return f"the {side} has parts of {min(parts)} to {max(parts)} elements, expected {own} each"
    return ""


def _fault_of_parts(call: Collective, count: int) -> str:
    sides = (("input", call.in_elements), ("output", call.out_elements))
    for (side, elements), parts, splits in zip(
        sides, parts_of(call, count), (call.in_splits, call.out_splits), strict=True
    ):
        if len(parts) != count:
            return f"the {side} has {len(parts)} parts, expected one for each of {count} ranks"
        if sum(parts) != elements:
            expected = f"{sum(parts)} by its parts" if splits else f"a multiple of {count}"
            return f"the {side} has {elements} elements, expected {expected}"
    return ""
