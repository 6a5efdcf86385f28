"""A call and the members of its group in, the bytes by which NCCL's tests name it out."""

from __future__ import annotations

from collections.abc import Sequence

from et_replay.ranks.collective import Collective
from et_replay.ranks.kinds import SIDES


def size_of(collective: Collective, count: int, present: Sequence[int]) -> int:
    """Return the bytes by which NCCL's tests name a call: what one rank has or gets at most.

    For gather and scatter that is what the root has, in all ranks. Of the `count` members of the
    group those `present` count, by their ranks in it.
    """
    in_parts, out_parts = SIDES.get(collective.kind, (False, False))
    in_sizes = collective.in_splits or collective.in_sizes
    out_sizes = collective.out_splits or collective.out_sizes
    given = _kept(collective.in_elements, in_parts, in_sizes, count, present)
    taken = _kept(collective.out_elements, out_parts, out_sizes, count, present)
    elements = max(given, taken)
    if collective.kind == "gather":
        elements = collective.in_elements * len(present)
    elif collective.kind == "scatter":
        elements = collective.out_elements * len(present)
    return elements * collective.element_size


def _kept(
    elements: int, has_parts: bool, sizes: Sequence[int], count: int, present: Sequence[int]
) -> int:
    """Return how many of the elements on one side of a call are for those `present`."""
    if not has_parts or len(present) == count:
        return elements
    if len(sizes) == count:
        return sum(sizes[rank] for rank in present)
    return elements // count * len(present)
