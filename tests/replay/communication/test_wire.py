"""What of tensors travels, and how much of them where members of a group are missing."""

from __future__ import annotations

import pytest
import torch

from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Group, Groups
from et_replay.replay.communication.casting import Casting
from et_replay.replay.communication.clock import collective_times
from et_replay.replay.communication.wire import fit_for, fit_root, fit_splits, wire_for
from et_replay.replay.result import CollectiveTimes


@pytest.mark.parametrize(
    ("dtype", "carried", "factor"),
    [
        (torch.float32, torch.float32, 1),
        (torch.complex64, torch.float32, 2),
        (torch.int16, torch.uint8, 2),
        (torch.float8_e4m3fn, torch.uint8, 1),
    ],
)
def test_gloo_gets_types_that_it_knows(
    dtype: torch.dtype, carried: torch.dtype, factor: int
) -> None:
    wire = wire_for(dtype, on_host=True)

    assert (wire.carried, wire.factor) == (carried, factor)
    assert wire.put(torch.zeros(3, 2, dtype=dtype)).shape == (6 * factor,)


def test_what_travels_is_the_memory_of_the_tensor() -> None:
    tensor = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)

    wire_for(torch.float32, on_host=True).put(tensor).fill_(1)

    assert bool((tensor == 1).all())


def test_memory_of_the_host_stands_for_a_meta_tensor() -> None:
    sent = wire_for(torch.bfloat16, on_host=True).put(
        torch.empty(5, dtype=torch.bfloat16, device="meta")
    )

    assert (sent.device.type, sent.dtype, sent.numel()) == ("cpu", torch.bfloat16, 5)


def test_lists_keep_the_tensors_of_the_members_that_are_here() -> None:
    fit = fit_for("all_gather", 4, (0, 2))
    assert fit is not None
    tensors = [torch.full((1,), float(rank)) for rank in range(4)]

    given, taken = fit([tensors[0]], tensors)

    assert (len(given), [tensor.item() for tensor in taken]) == (1, [0, 2])


def test_a_tensor_of_parts_keeps_as_many_as_there_are_members() -> None:
    fit = fit_for("reduce_scatter_tensor", 4, (1, 3))
    assert fit is not None

    given, taken = fit([torch.arange(8)], [torch.zeros(2)])

    assert (given[0].tolist(), taken[0].numel()) == ([0, 1, 2, 3], 2)


def test_uneven_parts_keep_what_they_add_up_to() -> None:
    given, taken = fit_splits([1, 2], [4])([torch.arange(9)], [torch.arange(9)])

    assert (given[0].numel(), taken[0].numel()) == (3, 4)


def test_a_root_that_was_none_in_the_job_gets_the_list_that_it_needs() -> None:
    fit = fit_root("gather", 3, is_root=True)
    assert fit is not None

    assert [tensor.shape for tensor in fit([torch.zeros(2)], [])[1]] == [(2,)] * 3
    assert fit_root("gather", 3, is_root=False) is None


def test_calls_of_one_kind_group_and_size_share_a_row_over_all_iterations() -> None:
    groups = Groups(0, 2, (Group((0, 1)),))
    small, large = (
        Collective("all_reduce", 0, 1, 0, dtype="float", element_size=4, in_elements=count)
        for count in (1, 9)
    )

    rows = collective_times(
        [{0: (5, 100), 1: (200, 10), 2: (300, 50)}, {0: (6, 110), 1: (210, 11), 2: (310, 51)}],
        [small, large, small],
        groups,
        Casting(0, 2, (0, 1), 2),
    )

    assert rows == (
        CollectiveTimes("all_reduce", (0, 1), "float", 4, (100, 50, 110, 51), (5, 300, 6, 310), 2),
        CollectiveTimes("all_reduce", (0, 1), "float", 36, (10, 11), (200, 210), 2),
    )
