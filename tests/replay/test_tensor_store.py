"""Inputs are created with the recorded bytes, and with values that no mode and no order changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import call, floats, integers, see, values_seen
from trace_builder import T, Typed

from et_replay.program import Mode
from et_replay.replay.contents import Contents
from et_replay.replay.requirement import Requirement
from et_replay.replay.target import Target
from et_replay.replay.tensor_store import TensorStore
from et_replay.replay.values import fill

CPU, META = (Target(torch.device(name), "cuda") for name in ("cpu", "meta"))


def store(
    folder: Path, *inputs: Typed, target: Target = CPU, needed: Requirement | None = None
) -> TensorStore:
    """Return the empty slots of a program that takes `inputs`, in this order."""
    program = program_of(folder, *(see(10 + k, each) for k, each in enumerate(inputs)))
    contents = Contents(program)
    if needed is not None:
        contents.requirements[0] = needed
    return TensorStore(program, target, contents, seed=7)


@pytest.mark.parametrize(
    ("tensor", "whole", "needed"),
    [
        (T(11, 11, 0, 12, 4, shape=(3, 4)), (3, 4), None),
        (T(11, 11, 0, 12, 2, shape=(3, 4), dtype="c10::BFloat16"), (3, 4), None),
        (T(11, 11, 0, 12, 8, shape=(3, 4), dtype="long int"), (3, 4), Requirement(2, 5)),
        (T(11, 11, 0, 12, 8, shape=(3, 4), dtype="long int"), (3, 4), None),
        (T(11, 11, 0, 12, 1, shape=(3, 4), dtype="bool"), (3, 4), None),
        (T(11, 11, 0, 24, 4, shape=(2, 3, 4), strides=(12, 1, 3)), (2, 12), None),
        (
            T(11, 11, 0, 12, 8, shape=(3, 4), strides=(1, 3), dtype="long int"),
            (3, 4),
            Requirement(0, 6, total=12),
        ),
        (
            T(11, 11, 0, 12, 1, shape=(3, 4), strides=(1, 3), dtype="c10::Float8_e4m3fn"),
            (3, 4),
            None,
        ),
        (T(11, 11, 5, 6, 4, shape=(2, 3), strides=(4, 1)), (2, 6), None),
        (
            T(11, 11, 0, 8, 4, shape=(2, 4), strides=(0, 1)),
            (2, 2),
            None,
        ),
    ],
    ids=[
        *("float", "half", "bounded", "zero", "bool", "permuted", "lengths", "float8"),
        *("offset", "expanded"),
    ],
)
def test_a_tensor_shows_its_part_of_a_storage_that_is_filled_whole(
    tmp_path: Path, tensor: Typed, whole: tuple[int, int], needed: Requirement | None
) -> None:
    created = store(tmp_path, tensor, needed=needed)

    created.create(0)

    shown = created.slots[0]
    expected = torch.empty(whole, dtype=shown.dtype)
    fill(expected, needed, seed=7)
    assert shown.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert (list(shown.shape), list(shown.stride())) == (tensor.shape, tensor.strides)
    part = expected.as_strided(shown.shape, shown.stride(), shown.storage_offset())
    assert shown.float().tolist() == part.float().tolist()


@pytest.mark.parametrize("target", [CPU, META], ids=["cpu", "meta"])
def test_a_tensor_may_be_smaller_than_its_storage(tmp_path: Path, target: Target) -> None:
    part, whole = floats(11, 2, 2), T(12, 11, 4, 6, 4, shape=(6,))
    created = store(tmp_path, part, whole, target=target)

    created.create(0)
    first = created.slots[0]
    created.create(1)

    assert first.untyped_storage().nbytes() == 40
    assert first.untyped_storage()._cdata == created.slots[1].untyped_storage()._cdata
    assert created.slots[1].storage_offset() == 4


def test_bytes_that_are_no_whole_entries_are_allocated_too(tmp_path: Path) -> None:
    created = store(
        tmp_path, integers(11, 2), T(12, 11, 0, 19, 1, shape=(19,), dtype="unsigned char")
    )

    created.create(0)

    assert created.slots[0].untyped_storage().nbytes() == 19
    assert created.slots[0].tolist() == [0, 0]


def test_a_storage_that_has_gone_comes_again_with_its_values(tmp_path: Path) -> None:
    created = store(tmp_path, floats(11, 2, 3), T(12, 11, 0, 6, 4, shape=(3, 2), strides=(1, 3)))

    created.create(0)
    created.create(1)
    first = [created.slots[slot].tolist() for slot in (0, 1)]
    created.drop([0])
    created.create(0)
    created.create(1)

    assert [created.slots[slot].tolist() for slot in (0, 1)] == first
    assert first[0] == torch.tensor(first[1]).t().tolist()


def test_all_modes_see_the_same_values(tmp_path: Path) -> None:
    table, index = floats(11, 5, 3), integers(12, 4)
    nodes = [
        see(10, T(13, 13, 0, 6, 4, shape=(2, 3), strides=(1, 2))),
        see(11, T(14, 14, 2, 4, 1, shape=(4,), dtype="bool")),
        call(12, "embedding", [table, index, -1, False, False], [floats(15, 4, 3)]),
        see(13, index),
        see(14, T(16, 11, 3, 3, 4, shape=(3,))),
        see(15, floats(15, 4, 3)),
    ]

    pre = values_seen(tmp_path, *nodes, mode=Mode.PRE_ALLOCATE, iterations=2)
    lazy = values_seen(tmp_path, *nodes, mode=Mode.LAZY_ALLOCATE, iterations=2)

    assert pre == lazy
    assert pre[:5] == pre[5:]
