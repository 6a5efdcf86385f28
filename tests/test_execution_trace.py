"""The layouts of tensors: when elements lie side by side in the order of their shape."""

from __future__ import annotations

import pytest

from et_replay.execution_trace import contiguous_strides, is_contiguous


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((), ()),
        ((5,), (1,)),
        ((2, 3, 4), (12, 4, 1)),
        ((2, 0, 4), (4, 4, 1)),
        ((3, 0), (1, 1)),
    ],
)
def test_a_new_tensor_has_the_strides_that_pytorch_gives_it_and_is_contiguous(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    assert contiguous_strides(shape) == strides
    assert is_contiguous(shape, strides)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        pytest.param((2, 3), (1, 2), id="transposed"),
        pytest.param((2, 3), (4, 1), id="gaps"),
        pytest.param((4,), (0,), id="expanded"),
    ],
)
def test_another_layout_is_not_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert not is_contiguous(shape, strides)


def test_the_stride_of_a_dimension_of_one_may_be_any() -> None:
    assert is_contiguous((1, 3, 1), (7, 1, 0))


def test_without_strides_a_tensor_is_taken_to_be_contiguous() -> None:
    assert is_contiguous((2, 3), None)
