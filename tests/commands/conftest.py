"""A trace of three operations, as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_builder import T, mark, operator, write_trace

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """Return a step over float matrices of 512 x 512, 1 MiB each: relu(a @ b) @ b."""

    def matrix(number: int) -> object:
        return T(number, number, 0, 512 * 512, 4, shape=(512, 512))

    return write_trace(
        tmp_path / "step.json",
        mark(9, "ProfilerStep#3"),
        operator(10, "aten::mm", 9, [matrix(101), matrix(102)], [matrix(103)], schema=MM),
        operator(11, "aten::relu", 9, [matrix(103)], [matrix(104)], schema=RELU),
        operator(12, "aten::mm", 9, [matrix(104), matrix(102)], [matrix(105)], schema=MM),
    )
