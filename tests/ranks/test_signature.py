"""What all ranks of a group have alike of a call, and what fits no group of that size."""

from __future__ import annotations

from typing import Any

import pytest

from et_replay.ranks.collective import Collective
from et_replay.ranks.signature import fault_of, parts_of, signature


def call(kind: str, given: int, taken: int, **others: Any) -> Collective:
    return Collective(
        kind, 3, 10, dtype="float", element_size=4, in_elements=given, out_elements=taken, **others
    )


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("all_reduce", 4, 4), "all_reduce of 4 float"),
        (call("all_reduce", 4, 4, reduction="MAX"), "all_reduce of 4 float with reduction max"),
        (call("all_gather_into_tensor", 4, 12), "all_gather_into_tensor of 4 float"),
        (call("reduce_scatter_tensor", 12, 4), "reduce_scatter_tensor of 4 float"),
        (call("broadcast", 4, 4, root=2), "broadcast of 4 float with root 2"),
        (call("all_gather", 4, 9, out_sizes=(4, 2, 3)), "all_gather of 9 float in 3 tensors"),
        (call("all_to_all_single", 4, 9), "all_to_all_single of float"),
        (Collective("barrier", 3, 10), "barrier"),
    ],
)
def test_a_signature_is_written_for_a_person(made: Collective, text: str) -> None:
    assert str(signature(made)) == text


def test_a_coalesced_call_of_one_tensor_is_the_plain_one() -> None:
    plain = call("all_gather_into_tensor", 4, 8)
    coalesced = call("all_gather_into_tensor_coalesced", 4, 8, in_sizes=(4,), out_sizes=(8,))
    assert signature(coalesced) == signature(plain)


def test_a_type_has_one_name_in_all_versions() -> None:
    old = Collective("all_reduce", 3, 10, dtype="long", in_elements=4, out_elements=4)
    new = Collective("all_reduce", 3, 10, dtype="long int", in_elements=4, out_elements=4)
    assert signature(old) == signature(new)


@pytest.mark.parametrize(
    "made",
    [
        call("all_reduce", 4, 4),
        call("all_gather", 2, 9, out_sizes=(4, 2, 3)),
        call("all_gather_coalesced", 4, 12),
        call("all_gather_into_tensor_coalesced", 3, 9, in_sizes=(1, 2), out_sizes=(3, 6)),
        call("reduce_scatter", 9, 2, in_sizes=(4, 2, 3)),
        call("reduce_scatter_tensor_coalesced", 9, 3, in_sizes=(3, 6), out_sizes=(1, 2)),
        call("gather", 4, 12, root=1, out_sizes=(4, 4, 4)),
        call("gather", 4, 0, root=0),
        call("scatter", 12, 4, root=1, in_sizes=(4, 4, 4)),
        call("scatter", 0, 4, root=2),
        call("all_to_all", 9, 6, in_sizes=(4, 2, 3), out_sizes=(1, 2, 3)),
        call("all_to_all_single", 9, 6),
        call("all_to_all_single", 9, 4, in_splits=(4, 2, 3), out_splits=(0, 0, 4)),
        Collective("all_gather", 3, 10, in_elements=4, out_elements=12),  # no tensors recorded
    ],
)
def test_what_fits_a_group_of_three_is_no_fault(made: Collective) -> None:
    assert fault_of(made, 3, 1) == ""


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (call("broadcast", 4, 4, root=3), "the root is rank 3 of a group of 3"),
        (
            call("all_gather", 4, 9, out_sizes=(4, 2, 3)),
            "the output's part for this rank has 2 elements, expected 4",
        ),
        (
            call("all_gather_coalesced", 4, 8),
            "the output has 8 elements and the input 4, expected 3 times as many for 3 ranks",
        ),
        (
            call("reduce_scatter", 8, 4, in_sizes=(4, 4)),
            "the input has 2 parts, expected one for each of 3 ranks",
        ),
        (
            call("gather", 4, 14, root=1, out_sizes=(4, 4, 6)),
            "the output has parts of 4 to 6 elements, expected 4 each",
        ),
        (
            call("scatter", 8, 4, root=1, in_sizes=(4, 4)),
            "the input has 2 parts, expected one for each of 3 ranks",
        ),
        (
            call("all_to_all", 9, 6, in_sizes=(4, 2, 3), out_sizes=(1, 5)),
            "the output has 2 parts, expected one for each of 3 ranks",
        ),
        (
            call("all_to_all_single", 8, 6),
            "the input has 8 elements, expected a multiple of 3",
        ),
        (
            call("all_to_all_single", 9, 6, in_splits=(4, 2, 1)),
            "the input has 9 elements, expected 7 by its parts",
        ),
    ],
)
def test_what_fits_no_group_of_three_is_told(made: Collective, text: str) -> None:
    assert fault_of(made, 3, 1) == text


def test_equal_parts_are_those_without_splits() -> None:
    assert parts_of(call("all_to_all_single", 9, 6), 3) == ((3, 3, 3), (2, 2, 2))
