"""Operators of other libraries: the user names the module that registers them."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import floats, reasons, run
from trace_builder import NodeSpec, operator

from et_replay.errors import UsageError
from et_replay.replay.imports import import_modules

DOUBLE = "et_replay_others::double(Tensor self) -> Tensor"
MODULE = """
import torch

LIBRARY = torch.library.Library("et_replay_others", "DEF")
LIBRARY.define("double(Tensor self) -> Tensor")
LIBRARY.impl("double", lambda value: value * 2, "CompositeExplicitAutograd")
"""


def doubled() -> NodeSpec:
    return operator(
        10, "et_replay_others::double", 2, [floats(11, 3)], [floats(12, 3)], schema=DOUBLE
    )


def test_an_operator_of_another_library_runs_once_its_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registers_double.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = program_of(tmp_path, doubled())

    before = run(program)
    after = run(program, imports=("registers_double",))

    reason = "torch has no operator et_replay_others::double; --import the module that registers it"
    assert reasons(before) == [("et_replay_others::double", 1, "substituted", reason)]
    assert (after.coverage.executed, after.coverage.reasons) == (1, [])


def test_a_module_that_is_missing_is_one_sentence() -> None:
    with pytest.raises(UsageError) as caught:
        import_modules(["no_such_module_of_operators"])

    assert str(caught.value) == (
        "--import no_such_module_of_operators: there is no such module here; install it, or add its"
        " folder to PYTHONPATH."
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('no GPU\\nhere.')", " failed: ValueError: no GPU here."),
        ("raise SystemExit(3)", " failed: SystemExit: 3."),
        (
            "import no_such_dependency",
            ", which needs no_such_dependency: there is no such module here; install it, or add its"
            " folder to PYTHONPATH.",
        ),
    ],
)
def test_a_module_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    (tmp_path / "fails_to_import.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(UsageError) as caught:
        import_modules(["fails_to_import"])

    assert str(caught.value) == f"--import fails_to_import{reason}"
