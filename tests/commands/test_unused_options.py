"""Options that mean nothing for an input are said to, or refused, and never pass in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from et_replay.commands import main

TRACES = Path(__file__).resolve().parents[2] / "traces"
TRACE = str(TRACES / "convnet_cuda.json.gz")
HISTORY = str(TRACES / "transformer_oom.pickle.gz")
TABLE = "id,lower,upper,size\na,0,3,512\n"


@pytest.fixture
def table(tmp_path: Path) -> str:
    file = tmp_path / "table.csv"
    file.write_text(TABLE)
    return str(file)


def said(flag: str) -> str:
    return f"warning: {flag} is for execution traces, and means nothing for a memory history."


def test_a_replay_of_a_history_names_all_that_it_does_not_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--iterations", "7", "--warmup", "4", "--seed", "3", "--on-unsupported", "fail"]
    words += ["--replay-mode", "comp", "--window", "2", "--import", "torchvision"]

    assert main(["--trace", HISTORY, *words]) == 3

    err = capsys.readouterr().err
    flags = ["--iterations", "--warmup", "--seed", "--on-unsupported", "--replay-mode"]
    for flag in (*flags, "--window", "--import"):
        assert err.count(said(flag)) == 1
    assert err.count("means nothing") == 7


@pytest.mark.parametrize(("command", "code"), [("compare", 3), ("fit", 0), ("plan", 0)])
def test_other_commands_name_what_says_which_part_of_a_trace(
    command: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--window", "3", "--subgraph", "x", "--tensor-allocation-mode", "lazy"]

    assert main([command, "--trace", HISTORY, *words]) == code

    err = capsys.readouterr().err
    for flag in ("--window", "--subgraph", "--tensor-allocation-mode"):
        assert err.count(said(flag)) == 1


def test_what_is_not_given_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--trace", HISTORY]) == 0
    assert "means nothing" not in capsys.readouterr().err


def test_a_table_has_no_streams_to_share(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--trace", table, "--share-streams"]) == 0
    assert f"{table} tells no streams, which --share-streams is about." in capsys.readouterr().err


def test_a_trace_is_of_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--trace", TRACE, "--share-streams"]) == 0
    err = capsys.readouterr().err
    assert f"{TRACE} is of one stream, so --share-streams changes nothing." in err


@pytest.mark.parametrize("command", ["compare", "fit", "plan"])
def test_only_some_files_are_of_several_devices(
    table: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (table, TRACE):
        assert main([command, "--trace", path, "--device-index", "3"]) == 0
        assert f"--device-index means nothing for {path}: only memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--effort", "best"],
        ["--iteration", "1:2"],
        ["--timeout", "3"],
        ["--share-streams"],
        ["--output", "other.json"],
    ],
)
def test_a_check_makes_no_plan(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "--trace", table, "--output", plan]) == 0

    assert main(["plan", "--check", plan, *words]) == 2
    assert f"{words[0]} is for making a plan, and --check makes none." in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--run-kernels"], ["--import", "torchvision"]])
def test_a_simulation_runs_no_operators(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["compare", "--trace", HISTORY, *words]) == 2
    assert f"{words[0]} needs --device: a simulation runs no operators." in capsys.readouterr().err


def test_a_timeline_is_of_one_input_and_has_no_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", "--trace", HISTORY, "--jobs", "2"]) == 2
    assert "unrecognized arguments: --jobs 2" in capsys.readouterr().err
