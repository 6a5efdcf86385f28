"""Calls whose recorded results are damaged: they are substituted, and others keep their places."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import call, floats, reasons, run
from trace_builder import T, Typed


def test_on_meta_a_damaged_result_is_told_as_such(tmp_path: Path) -> None:
    b, lost = floats(12, 6), Typed([14, 14, 0, -5, 4, "cuda:0"], "Tensor(float)", [6], [1])
    program = program_of(
        tmp_path,
        call(10, "relu", [floats(11, 6)], [b]),
        call(11, "relu", [b], [lost]),
        call(12, "nonzero", [b], [lost]),
    )

    result = run(program, device="meta")

    reason = "its recorded output is damaged"
    assert sorted(reasons(result)) == [
        ("aten::nonzero", 1, "substituted", reason),
        ("aten::relu", 1, "substituted", reason),
    ]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_damaged_result_beside_others_does_not_shift_them(tmp_path: Path, device: str) -> None:
    mean, lost = floats(13, 4, 1), Typed(None, "Tensor(float)", [4, 6], [6, 1])
    program = program_of(
        tmp_path,
        call(
            10,
            "native_layer_norm",
            [floats(11, 4, 6), [6], None, None, 1e-5],
            [lost, mean, floats(14, 4, 1)],
        ),
        call(11, "expand", [mean, [4, 9], False], [T(15, 13, 0, 36, 4, shape=(4, 9))]),
    )

    result = run(program, device=device)

    assert reasons(result) == [
        ("aten::native_layer_norm", 1, "substituted", "its recorded output is damaged")
    ]


def test_on_a_device_with_values_a_call_runs_without_its_only_result(tmp_path: Path) -> None:
    lost = Typed([14, 14, 0, -5, 4, "cuda:0"], "Tensor(float)", [6], [1])

    result = run(program_of(tmp_path, call(10, "relu", [floats(11, 6)], [lost])), device="cpu")

    assert (result.coverage.executed, reasons(result)) == (1, [])
