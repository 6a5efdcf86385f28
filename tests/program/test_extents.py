"""The bytes of a storage: what its uses prove, from offset, shape and strides."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import changes, lives, program_of
from trace_builder import T, Typed, operator

from et_replay.program import Mode


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        pytest.param(T(2, 9, 1000, 10, 4, "cpu"), 4040, id="offset-counts-elements"),
        pytest.param(T(2, 9, 3, 5, 8, dtype="long int"), 64, id="offset-in-items-of-8-bytes"),
        pytest.param(
            T(2, 9, 0, 1000000, 4, shape=[1000, 1000], strides=[0, 0]),
            4,
            id="expanded-is-one-element",
        ),
        pytest.param(T(2, 9, 0, 12, 4, shape=[4, 3], strides=[6, 2]), 92, id="strided-spans-gaps"),
        pytest.param(
            T(2, 9, 0, 64000, 2, shape=[250, 256], strides=[1, 0], dtype="c10::Half"),
            500,
            id="expanded-in-one-dimension",
        ),
        pytest.param(T(2, 9, 0, 6, 4, shape=[3, 2], strides=[1, 3]), 24, id="transposed-is-dense"),
        pytest.param(T(2, 9, 0, 1, 4, shape=[], strides=[]), 4, id="scalar-is-one-element"),
        pytest.param(T(2, 9, 7, 1, 4, shape=[], strides=[]), 32, id="scalar-at-an-offset"),
        pytest.param(T(2, 9, 0, 4, 1, shape=[4], dtype="bool"), 4, id="bytes-not-rounded"),
    ],
)
def test_size_is_offset_plus_extent_times_itemsize(
    tmp_path: Path, tensor: Typed, size: int
) -> None:
    program = program_of(tmp_path, operator(3, "aten::relu", inputs=[tensor]))

    assert lives(program) == [(9, "input", size, 3)]
    assert program.storages[0].estimated is False


def test_without_strides_numel_counts_and_the_size_is_an_estimate(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::sum", inputs=[T(2, 9, 10, 12, 4, shape=[4, 3])]),
        schema="1.1.0-chakra.0.0.4",
    )

    assert lives(program) == [(9, "input", 88, 3)]
    assert program.storages[0].estimated is True


def test_flat_traces_are_estimates_too(tmp_path: Path) -> None:
    program = program_of(
        tmp_path, operator(3, "aten::sum", inputs=[T(2, 9, 0, 12, 4, shape=[4, 3])]), schema="1.0.1"
    )

    assert lives(program) == [(9, "input", 48, 3)]
    assert program.storages[0].estimated is True


def test_the_largest_use_decides_wherever_it_is(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::sum", inputs=[T(2, 9, 0, 10, 4)]),
        operator(4, "aten::sum", inputs=[T(3, 9, 90, 10, 4)]),
        operator(5, "aten::sum", inputs=[T(4, 9, 50, 10, 4)]),
    )

    assert lives(program) == [(9, "input", 400, 5)]
    assert changes(program, Mode.PRE_ALLOCATE) == [["+9:400"], [], [], [], []]


def test_a_use_inside_a_recorded_child_counts(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::pad", inputs=[T(2, 9, 0, 10, 4)]),
        operator(4, "aten::as_strided", 3, inputs=[T(2, 9, 0, 10, 4)], outputs=[T(5, 9, 0, 32, 4)]),
    )

    assert lives(program) == [(9, "input", 128, 4)]


def test_views_of_another_item_size_are_compared_in_bytes(tmp_path: Path) -> None:
    complex_ones = T(2, 9, 0, 10, 8, dtype="c10::complex<float>")
    real = T(3, 9, 1, 10, 4, shape=[10], strides=[2])
    program = program_of(
        tmp_path, operator(3, "aten::view_as_real", inputs=[complex_ones], outputs=[real])
    )

    assert lives(program) == [(9, "input", 80, 3)]


def test_a_size_belongs_to_its_generation_not_to_the_id(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(5, 6, 0, 10, 4)]),
        operator(4, "aten::sum", inputs=[T(5, 6, 0, 10, 4)]),
        operator(5, "aten::empty", outputs=[T(7, 6, 0, 1000, 4)]),
        operator(6, "aten::sum", inputs=[T(7, 6, 0, 1000, 4)]),
    )

    assert lives(program) == [(6, "produced", 40, 4), (6, "produced", 4000, 6)]


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(T(2, 9, 0, 0, 4, shape=[0]), id="no-elements"),
        pytest.param(T(2, 9, 100, 0, 4, shape=[5, 0]), id="no-elements-at-an-offset"),
        pytest.param(T(2, 0, 0, 10, 4), id="no-storage"),
        pytest.param(T(2, 0, 0, 0, 4, "", shape=[3, 4], strides=[]), id="sparse"),
    ],
)
def test_what_has_no_bytes_allocates_nothing(tmp_path: Path, tensor: Typed) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[tensor]),
        operator(4, "aten::relu", inputs=[tensor], outputs=[T(5, 6, 0, 10, 4)]),
    )

    assert lives(program) == [(6, "produced", 40, 4)]
    assert changes(program, Mode.PRE_ALLOCATE) == [[], [], ["+6:40", "-6:40"], []]
    assert changes(program, Mode.LAZY_ALLOCATE) == [[], [], ["+6:40", "-6:40"], []]


def test_two_views_of_one_storage_are_one_allocation(tmp_path: Path) -> None:
    program = program_of(
        tmp_path, operator(3, "aten::add", inputs=[T(2, 9, 0, 64, 4), T(3, 9, 64, 64, 4)])
    )

    assert lives(program) == [(9, "input", 512, 3)]
    assert len(program.tensors) == 2
    assert [tensor.offset for tensor in program.tensors] == [0, 64]


def test_one_tuple_in_two_shapes_is_two_views_of_one_storage(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        operator(3, "aten::empty", outputs=[T(3, 4, 0, 6, 4, shape=[6])]),
        operator(4, "aten::sum", inputs=[T(3, 4, 0, 6, 4, shape=[2, 3])]),
    )

    assert lives(program) == [(4, "produced", 24, 4)]
    assert sorted(tensor.shape for tensor in program.tensors) == [(2, 3), (6,)]
    assert {tensor.storage for tensor in program.tensors} == {0}
