"""The digest of a rank's calls: what they amount to."""

from __future__ import annotations

from et_replay.ranks.collective import Collective
from et_replay.ranks.digest import digest
from et_replay.ranks.groups import Group, Groups

GROUPS = Groups(0, 3, (Group((0, 1, 2)),))


def test_the_bytes_of_gather_and_scatter_are_what_the_root_has_on_every_rank() -> None:
    gather = Collective("gather", 0, 10, 0, dtype="float", element_size=4, in_elements=5, root=1)
    scatter = Collective(
        "scatter", 1, 11, 0, dtype="double", element_size=8, out_elements=2, root=1
    )
    (group,) = digest(GROUPS, [gather, scatter, gather]).groups

    assert [str(signature) for signature in group.signatures] == [
        "gather of 5 float with root 1",
        "scatter of 2 double with root 1",
    ]
    assert group.bytes == (2 * 3 * 5 * 4, 3 * 2 * 8)


def test_an_all_to_all_of_too_many_parts_has_a_size_and_a_fault() -> None:
    call = Collective(
        "all_to_all_single",
        0,
        10,
        0,
        dtype="float",
        element_size=4,
        in_elements=6,
        out_elements=6,
        in_splits=(1, 1, 1, 3),
    )
    (group,) = digest(GROUPS, [call]).groups

    assert group.bytes == (24,)
    assert group.fault is not None
    assert group.fault.text == "the input has 4 parts, expected one for each of 3 ranks"
