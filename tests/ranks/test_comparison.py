"""The calls of a group's ranks: where they differ in what not every trace tells."""

from __future__ import annotations

from et_replay.ranks.collective import Collective
from et_replay.ranks.comparison import GroupComparison
from et_replay.ranks.digest import GroupDigest, digest
from et_replay.ranks.groups import Group, Groups

GROUP = Group((0, 1))


def sums(rank: int, *reductions: str | None) -> GroupDigest:
    """Return the digest of a rank that reduces four elements as often as told."""
    calls = [
        Collective(
            "all_reduce",
            position,
            10 + position,
            0,
            dtype="float",
            element_size=4,
            in_elements=4,
            out_elements=4,
            reduction=reduction,
        )
        for position, reduction in enumerate(reductions)
    ]
    return digest(Groups(rank, 2, (GROUP,)), calls).groups[0]


def compared(first: GroupDigest, second: GroupDigest) -> str:
    comparison = GroupComparison(0, first)
    comparison.add(1, second)
    comparison.close()
    return comparison.misfit.text if comparison.misfit else ""


def test_another_reduction_does_not_fit() -> None:
    assert compared(sums(0, "sum", "sum"), sums(1, "SUM", "max")) == (
        "Rank 1 calls all_reduce of 4 float with reduction max at node 11 as call 2 of group"
        " (0, 1), where rank 0 calls all_reduce of 4 float with reduction sum at node 11."
    )


def test_a_reduction_that_one_trace_does_not_tell_fits_any() -> None:
    assert compared(sums(0, None, "max", None), sums(1, "sum", None, None)) == ""


def test_a_call_that_lacks_is_told_with_its_reduction() -> None:
    assert compared(sums(0, "avg", "avg"), sums(1, None)) == (
        "Rank 1 makes 1 call in group (0, 1) and then lacks all_reduce of 4 float with reduction"
        " avg, which rank 0 calls at node 11."
    )
