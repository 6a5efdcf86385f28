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


SHORT = "--enable-lazy-tensor-allocation"
MODE = "--tensor-allocation-mode"


@pytest.mark.parametrize(
    ("words", "first", "second"),
    [
        (["--cpu", "--device", "meta"], "--cpu", "--device meta"),
        (["--device", "meta", "--cpu"], "--device meta", "--cpu"),
        (["--device", "auto", "--cpu"], "--device auto", "--cpu"),
        (["--device", "meta", "--device", "cpu", SHORT, MODE, "pre"], SHORT, f"{MODE} pre"),
        ([MODE, "pre", SHORT], f"{MODE} pre", SHORT),
    ],
)
def test_a_flag_and_what_is_short_for_another_value_of_it_are_refused(
    words: list[str], first: str, second: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", TRACE, *words]) == 2
    assert capsys.readouterr() == (
        "",
        f"et_replay: error: {first} and {second} contradict each other, expected one of them (see"
        " et_replay replay --help)\n",
    )


@pytest.mark.parametrize(
    "words", [["--cpu", "--device", "cpu"], ["--device", "meta", "--device", "cpu", "--cpu"]]
)
def test_a_flag_and_what_is_short_for_it_may_both_be_given(
    trace_file: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", str(trace_file), *words, SHORT, MODE, "lazy"]) == 0
    out, err = capsys.readouterr()
    assert "Device        cpu, " in out
    assert "Mode          lazy" in out
    assert err == ""


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("mode", ["comp", "full"])
def test_only_on_cuda_there_are_kernels_to_run(
    trace_file: Path, device: str, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trace", str(trace_file), "--device", device, "--replay-mode", mode]

    assert main([*words, "--run-kernels"]) == 0
    assert capsys.readouterr().err == (
        f"warning: --run-kernels is for a replay on cuda, and means nothing on {device}.\n"
    )
    assert main([*words, "--run-kernels", "--quiet"]) == 0
    assert main(words) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mode", ["comp", "full"])
def test_an_entry_of_the_configuration_that_leaves_nothing_out_is_named(
    trace_file: Path, tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        """{"skip": [
            {"operator": "nix::*", "reason": "x"},
            {"operator": "aten::mm", "reason": "x", "nodes": [12, 999]},
            {"operator": "aten::relu", "reason": "x", "nodes": [999]},
            {"operator": "aten::re*", "reason": "x"}
        ]}"""
    )
    words = ["--trace", str(trace_file), "--device", "meta", "--replay-mode", mode]

    assert main([*words, "--config", str(config)]) == 0
    end = "matches no operation of this replay, so it leaves nothing out."
    assert capsys.readouterr().err.splitlines() == [
        f"warning: --config {config}: nix::* at `$.skip[0]` {end}",
        f"warning: --config {config}: aten::relu with its nodes at `$.skip[2]` {end}",
    ]
    assert main([*words, "--config", str(config), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
