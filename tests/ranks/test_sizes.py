"""The size of a call, as the tests of NCCL name it."""

from __future__ import annotations

import pytest

from et_replay.ranks.collective import Collective
from et_replay.ranks.sizes import size_of


@pytest.mark.parametrize(
    ("kind", "given", "taken", "size"),
    [
        ("all_reduce", 10, 10, 40),
        ("all_gather_into_tensor", 10, 40, 160),
        ("reduce_scatter_tensor", 40, 10, 160),
        ("gather", 10, 0, 160),
        ("scatter", 0, 10, 160),
        ("recv", 0, 10, 40),
    ],
)
def test_sizes_are_those_of_the_tests_of_nccl(kind: str, given: int, taken: int, size: int) -> None:
    collective = Collective(
        kind, 0, 1, group=0, element_size=4, in_elements=given, out_elements=taken
    )

    assert size_of(collective, 4, range(4)) == size


@pytest.mark.parametrize(
    ("kind", "given", "taken", "size"),
    [
        ("all_reduce", (10,), (10,), 40),
        ("all_gather_into_tensor", (10,), (40,), 80),
        ("reduce_scatter", (1, 2, 4, 8), (2,), 36),
        ("gather", (10,), (), 80),
    ],
)
def test_sizes_are_of_what_the_members_that_are_here_move(
    kind: str, given: tuple[int, ...], taken: tuple[int, ...], size: int
) -> None:
    collective = Collective(
        kind,
        0,
        1,
        group=0,
        element_size=4,
        in_elements=sum(given),
        out_elements=sum(taken),
        in_sizes=given,
        out_sizes=taken,
    )

    assert size_of(collective, 4, (0, 3)) == size


@pytest.mark.parametrize(("present", "size"), [((0, 1, 2), 36), ((0, 2), 28)])
def test_uneven_parts_count_as_they_are(present: tuple[int, ...], size: int) -> None:
    collective = Collective(
        "all_to_all_single",
        0,
        1,
        element_size=4,
        in_elements=9,
        out_elements=6,
        in_splits=(4, 2, 3),
        out_splits=(1, 2, 3),
    )

    assert size_of(collective, 3, present) == size
