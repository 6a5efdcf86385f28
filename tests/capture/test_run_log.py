"""Of several processes that say they are a rank, the one that trains has its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_replay.capture.run_log import RunLog

ITERATION = {"iteration": 0}


def entries(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    lines = (folder / f"rank-{rank}.run.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def who(folder: Path, rank: int = 0) -> object:
    return entries(folder, rank)[0]["who"]


def test_the_first_line_is_there_from_the_start(tmp_path: Path) -> None:
    log = RunLog(tmp_path, {"who": "script"})
    assert entries(tmp_path) == [
        {"who": "script", "rank": 0, "world_size": 1, "rank_known_by": "default"}
    ]
    log.close()


def test_facts_that_are_known_later_are_in_the_first_line_as_well(tmp_path: Path) -> None:
    log = RunLog(tmp_path, {"who": "script", "device": None})
    log.write(ITERATION)
    assert log.settle({"device": "cpu"})
    log.write({"iteration": 1})
    log.close()
    first, *told = entries(tmp_path)
    assert first["device"] == "cpu"
    assert told == [ITERATION, {"iteration": 1}]


def test_who_trains_takes_the_files_from_who_does_not(tmp_path: Path) -> None:
    launcher = RunLog(tmp_path, {"who": "launcher"})
    script = RunLog(tmp_path, {"who": "script"})
    assert who(tmp_path) == "launcher"
    assert script.path("et.json") is None
    (tmp_path / "rank-0.et.json").write_text("of the launcher")
    script.write(ITERATION)
    assert script.settle()
    launcher.write({"end": "exit"})
    assert who(tmp_path) == "script"
    assert launcher.path("et.json") is None
    assert script.path("et.json") == tmp_path / "rank-0.et.json"
    assert not (tmp_path / "rank-0.et.json").exists()


def test_who_knows_its_rank_takes_the_files_from_who_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunLog(tmp_path, {"who": "launcher"})
    monkeypatch.setenv("RANK", "0")
    RunLog(tmp_path, {"who": "rank 0"})
    RunLog(tmp_path, {"who": "a worker of rank 0"})
    assert who(tmp_path) == "rank 0"


def test_who_trains_second_does_not_take_the_files(tmp_path: Path) -> None:
    logs = [RunLog(tmp_path, {"who": name}) for name in ("first", "second")]
    for log in logs:
        log.write(ITERATION)
    assert [log.settle() for log in logs] == [True, False]
    assert who(tmp_path) == "first"


def test_who_ended_without_training_leaves_the_files_to_the_next(tmp_path: Path) -> None:
    first = RunLog(tmp_path, {"who": "first"})
    first.write({"end": "exit"})
    RunLog(tmp_path, {"who": "next"})
    assert who(tmp_path) == "next"


def test_a_process_that_learns_its_rank_moves_to_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RunLog(tmp_path, {"who": "script"})
    monkeypatch.setenv("RANK", "3")
    log.write(ITERATION)
    assert log.settle()
    assert [file.name for file in tmp_path.iterdir()] == ["rank-3.run.jsonl"]
    assert entries(tmp_path, 3)[1:] == [ITERATION]


def test_a_last_line_that_is_cut_is_no_obstacle(tmp_path: Path) -> None:
    first = RunLog(tmp_path, {"who": "first"})
    first.close()
    with (tmp_path / "rank-0.run.jsonl").open("a") as file:
        file.write('{"iterat')
    log = RunLog(tmp_path, {"who": "second"})
    log.write(ITERATION)
    assert log.settle()
    assert who(tmp_path) == "second"
