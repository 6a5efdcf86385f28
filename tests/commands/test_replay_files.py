"""`et_replay`: subgraphs, modules, configurations, and the files about a replay."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trace_builder import T, mark, operator, write_trace

from et_replay.commands import main

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
OTHER = "no_library::op(Tensor self) -> Tensor"


def replay(trace: Path, *words: str) -> int:
    return main(["--trace", str(trace), "--device", "cpu", "--iterations", "1", *words])


def result(path: Path) -> dict[str, Any]:
    (only,) = json.loads(path.read_text())["results"]
    assert isinstance(only, dict)
    return only


def layers(folder: Path) -> Path:
    """Write two layers: a product each, and in the last one an operator of another library."""
    a, b, c, d = (T(k, k, 0, 16, 4, shape=(4, 4)) for k in (101, 102, 103, 104))
    return write_trace(
        folder / "layers.json",
        mark(8, "layer"),
        operator(9, "aten::mm", 8, [a, b], [c], schema=MM),
        mark(10, "layer"),
        operator(11, "aten::mm", 10, [c, b], [d], schema=MM),
        operator(12, "no_library::op", 10, [d], [a], schema=OTHER),
    )


@pytest.mark.parametrize(
    ("words", "window", "total"),
    [
        ([], "all", 3),
        (["--subgraph", "layer"], "all/layer#2", 2),
        (["--subgraph", "layer#1"], "all/layer#1", 1),
        (["--window", "9:12", "--subgraph", "layer"], "9:12/layer#1", 1),
        (["--node", "11"], "11:12", 1),
    ],
)
def test_a_part_of_a_trace_is_replayed(
    tmp_path: Path, words: list[str], window: str, total: int
) -> None:
    file = tmp_path / "result.json"

    assert replay(layers(tmp_path), *words, "--json", str(file)) == 0

    found = result(file)
    assert (found["window"], found["operations"]["total"]) == (window, total)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--subgraph", "head"], "has no annotation 'head' in window all; it has layer."),
        (
            ["--node", "11", "--subgraph", "layer"],
            "--node names one operator, so --window and --subgraph contradict it.",
        ),
        (["--subgraph", ""], "argument --subgraph: Expected a name, got ''."),
        (["--import", ""], "argument --import: Expected a name, got ''."),
        (["--dump", "folder.py"], "--dump folder.py is not a regular file."),
        (["--import", "no_such_module"], "--import no_such_module: there is no such module here;"),
        (["--import", "a-b"], "--import a-b: expected the name of a module, as Python writes it."),
        (
            ["--update-config", "x.json", "--device", "meta"],
            "--update-config needs operators that compute: what meta cannot do, another device",
        ),
        (["--config", "nowhere.json"], "--config nowhere.json cannot be read: No such file"),
        (["--dump", "x.txt"], "argument --dump: Expected a name that ends in .py, got 'x.txt'."),
        (["--dump", "x.py", "--json", "-"], "so there is nothing for --json to say."),
        (["--profile", "x.json", "--json", "x.json"], "both name x.json, expected two files."),
    ],
)
def test_what_cannot_be_is_wrong_usage(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    trace = layers(tmp_path)
    monkeypatch.chdir(tmp_path)

    (tmp_path / "folder.py").mkdir()

    assert replay(trace, *words) == 2

    assert sentence in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.py", "layers.json"]


def test_a_configuration_written_by_one_replay_quiets_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, config, file = layers(tmp_path), tmp_path / "config.json", tmp_path / "result.json"

    assert replay(trace, "--update-config", str(config)) == 0

    reason = "torch has no operator no_library::op; --import the module that registers it"
    assert json.loads(config.read_text()) == {
        "import": [],
        "skip": [{"operator": "no_library::op", "reason": reason}],
    }
    capsys.readouterr()
    words = ["--config", str(config), "--on-unsupported", "fail", "--json", str(file)]
    assert replay(trace, *words) == 0
    out = capsys.readouterr().out
    assert "Left out      1 operations of 1 names, as the configuration says" in out
    assert "Operations not executed as recorded" not in out
    assert result(file)["reasons"] == [
        {
            "name": "no_library::op",
            "count": 1,
            "outcome": "skipped",
            "reason": reason,
            "configured": True,
        }
    ]


def test_a_configuration_is_updated_in_place_by_force_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, config = layers(tmp_path), tmp_path / "config.json"
    config.write_text('{"skip": [{"operator": "aten::mm", "reason": "slow"}]}')
    words = ["--config", str(config), "--update-config", str(config)]

    assert replay(trace, *words) == 2
    assert replay(trace, *words, "--force") == 0

    assert [each["operator"] for each in json.loads(config.read_text())["skip"]] == [
        "aten::mm",
        "no_library::op",
    ]


@pytest.mark.parametrize("flag", ["--json", "--profile", "--execution-trace"])
def test_a_configuration_is_never_overwritten_by_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    trace, config = layers(tmp_path), tmp_path / "config.json"
    config.write_text('{"skip": []}')

    assert replay(trace, "--config", str(config), flag, str(config), "--force") == 2

    assert f"--config and {flag} both name {config}, expected two" in capsys.readouterr().err
    assert config.read_text() == '{"skip": []}'


def test_a_file_that_was_there_does_not_stand_for_one_that_was_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("the profiler is busy")

    monkeypatch.setattr("et_replay.replay.recordings.record_profile", fail)
    profile = tmp_path / "profile.json"
    profile.write_text("{}")

    assert replay(layers(tmp_path), "--profile", str(profile), "--force") == 1

    assert f"--profile {profile} is not written, as the notes say." in capsys.readouterr().err
    assert profile.read_text() == "{}"


def test_files_about_a_replay_appear_whole(tmp_path: Path) -> None:
    trace = layers(tmp_path)
    profile, again = tmp_path / "profile.json", tmp_path / "again.json.gz"

    assert replay(trace, "--profile", str(profile), "--execution-trace", str(again)) == 0

    assert json.loads(profile.read_text())["traceEvents"]
    file = tmp_path / "result.json"
    assert replay(again, "--json", str(file)) == 0
    assert result(file)["operations"]["executed"] == 2
    assert len(list(tmp_path.iterdir())) == 4


def test_a_replay_that_fails_leaves_no_file(tmp_path: Path) -> None:
    words = ["--profile", str(tmp_path / "profile.json"), "--on-unsupported", "fail"]

    assert replay(layers(tmp_path), *words) == 1

    assert [path.name for path in tmp_path.iterdir()] == ["layers.json"]


def test_a_dump_is_written_instead_of_a_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "layer.py"

    assert replay(layers(tmp_path), "--subgraph", "layer", "--dump", str(file)) == 0

    assert capsys.readouterr().out == f"Wrote {file}: 2 operations, 1 of which it replays.\n"
    done = subprocess.run(
        [sys.executable, "-I", str(file)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "result: torch.float32, (4, 4)"


@pytest.mark.parametrize(
    ("node", "skip", "said"),
    [
        ("9", "aten::add", "1 operations, which it replays"),
        ("9", "aten::mm", "1 operations, 0 of which it replays"),
        ("12", "aten::add", "1 operations, 0 of which it replays"),
    ],
)
def test_a_dump_says_how_much_of_it_it_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], node: str, skip: str, said: str
) -> None:
    config, file = tmp_path / "config.json", tmp_path / "node.py"
    config.write_text(json.dumps({"skip": [{"operator": skip, "reason": "slow"}]}))
    words = ["--node", node, "--dump", str(file), "--config", str(config)]

    assert replay(layers(tmp_path), *words) == 0

    assert capsys.readouterr().out == f"Wrote {file}: {said}.\n"


def test_info_lists_what_subgraphs_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, file = layers(tmp_path), tmp_path / "info.json"

    assert main(["info", "--trace", str(trace), "--json", str(file)]) == 0

    out = capsys.readouterr().out
    assert (
        "Annotations (1 names), for --subgraph\n"
        "  annotation  count  operations\n"
        "  layer           2           3\n"
    ) in out
    assert result(file)["annotations"] == [{"name": "layer", "count": 2, "operations": 3}]


def test_the_report_says_that_the_time_of_collectives_is_absent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gradient, file = T(11, 11, 0, 10, 4), tmp_path / "result.json"
    trace = write_trace(
        tmp_path / "job.json",
        operator(10, "c10d::allreduce_", 2, [[gradient], -1], [[gradient]]),
        operator(11, "record_param_comms", 2, [7, "", 0, "wait", [], []], schema=""),
    )

    assert replay(trace, "--json", str(file)) == 0

    assert (
        "Collectives   1 not executed, which only replay modes comm and full do: their buffers live"
        " until they are complete, their time is absent"
    ) in capsys.readouterr().out
    assert result(file)["collectives"] == {"count": 1, "time": "absent"}


def test_without_collectives_nothing_is_said_of_them(trace_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"

    assert replay(trace_file, "--json", str(file)) == 0

    assert result(file)["collectives"] == {"count": 0, "time": None}


def test_modules_mean_nothing_to_a_comparison_that_only_simulates(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--trace", str(trace_file), "--import", "torchvision"]) == 2

    assert "--import needs --device: a simulation runs no operators." in capsys.readouterr().err
