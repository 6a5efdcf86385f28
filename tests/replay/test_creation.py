"""Tensors that are quantised, sparse, or skip a part of their storage, as a replay makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import call, floats, held, reasons, run
from trace_builder import T, Typed

from et_replay.program.program import Tensor
from et_replay.replay.creation import maker, view
from et_replay.replay.requirement import Requirement
from et_replay.replay.sparse import Entries, sparse_maker

CPU = torch.device("cpu")


def sparse(number: int, *shape: int) -> Typed:
    """Return a sparse tensor as the observer shows it: without storage, device or strides."""
    return Typed([number, 0, 0, 0, 0, ""], "Tensor(float)", list(shape), [0] * len(shape))


def test_values_in_order_lie_in_the_tensor_where_it_skips_storage() -> None:
    offsets = Tensor(0, "long int", 8, 1, (3,), (2,))

    made = maker(offsets, 48, CPU, Requirement(0, 8, even=True), 0)(True)

    assert made.tolist() == [0, 4, 8]
    assert (made.stride(), made.storage_offset()) == ((2,), 1)


@pytest.mark.parametrize("dtype", ["qint8", "quint8", "qint32"])
def test_a_quantised_tensor_has_a_scale_of_one(dtype: str) -> None:
    size = 24 if dtype == "qint32" else 6
    tensor = Tensor(0, f"c10::{dtype}", size // 6, 0, (2, 3), (3, 1))

    made = maker(tensor, size, CPU, None, 0)(True)

    assert made.dequantize().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert (made.q_scale(), made.q_zero_point()) == (1.0, 0)
    assert made.untyped_storage().nbytes() == size


def test_a_quantised_tensor_is_a_view_of_a_storage_that_is_there() -> None:
    column = Tensor(0, "c10::qint8", 1, 1, (2,), (3,))
    base = torch.tensor([1, 2, 3, 4, 5, 6], dtype=torch.int8)

    assert view(base.untyped_storage(), column).int_repr().tolist() == [2, 5]


def test_a_sparse_tensor_has_as_many_entries_as_were_recorded() -> None:
    tensor = Tensor(0, "float", 0, 0, (6, 2), (0, 0))

    made = sparse_maker(tensor, Entries(1, 3), CPU, 0)(True)

    assert made.is_coalesced()
    assert made.indices().tolist() == [[0, 2, 4]]
    assert tuple(made.values().shape) == (3, 2)


def test_a_sparse_tensor_of_unknown_entries_has_one_for_each_row() -> None:
    made = sparse_maker(Tensor(0, "float", 0, 0, (3, 3), (0, 0)), None, CPU, 0)(True)

    assert made.indices().tolist() == [[0, 1, 2], [0, 0, 0]]


def test_an_empty_sparse_tensor_has_no_entries() -> None:
    made = sparse_maker(Tensor(0, "float", 0, 0, (0, 3), (0, 0)), None, CPU, 0)(True)

    assert tuple(made.shape) == (0, 3)
    assert made._nnz() == 0


def test_the_entries_that_a_window_takes_out_are_those_of_its_sparse_input(tmp_path: Path) -> None:
    indices = T(12, 12, 0, 4, 8, "cpu", (1, 4), dtype="long int")
    program = program_of(
        tmp_path,
        call(10, "_indices", [sparse(11, 9, 2)], [indices]),
        call(13, "_values", [sparse(11, 9, 2)], [floats(14, 4, 2, device="cpu")]),
    )

    replayed = held(program)

    assert replayed.result().coverage.reasons == []
    assert [slot._nnz() for slot in replayed._store.slots if is_sparse(slot)] == [4]


def is_sparse(slot: object) -> bool:
    return isinstance(slot, torch.Tensor) and slot.layout is torch.sparse_coo


def test_operators_on_quantised_tensors_run(tmp_path: Path) -> None:
    quantised = T(11, 11, 0, 6, 1, "cpu", (2, 3), dtype="c10::quint8")
    program = program_of(
        tmp_path,
        call(10, "dequantize.self", [quantised], [floats(12, 2, 3, device="cpu")]),
        call(
            13, "int_repr", [quantised], [T(14, 14, 0, 6, 1, "cpu", (2, 3), dtype="unsigned char")]
        ),
    )

    assert reasons(run(program)) == []
