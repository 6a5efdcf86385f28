"""What the processes of a captured run told, also where they were killed while they wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from captured_folders import write_run

from et_replay.errors import TraceError
from et_replay.formats.captured_run import captured_runs, read_captured_run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of any content."""
    path = tmp_path / "content"
    path.write_bytes(b"any")
    return path


def test_a_run_is_read(tmp_path: Path, file: Path) -> None:
    path = write_run(tmp_path / "run", ends=[2_000_000, 3_000_000], snapshot=file, trace=file)
    run = read_captured_run(path)

    assert run.header.words == ("python", "train.py")
    assert (run.header.rank, run.header.world_size) == (0, 1)
    assert run.header.device_memory_bytes == 150109880320
    assert [each.by for each in run.iterations] == ["optimizer step", "optimizer step"]
    assert run.marks == (2_000_000, 3_000_000)
    assert run.snapshot == tmp_path / "run" / "rank-0.snapshot.pickle"
    assert run.trace == tmp_path / "run" / "rank-0.et.json"
    assert (run.end, run.failures, run.notes) == ("exit", (), ())


@pytest.mark.parametrize("lost", [1, 10, 40])
def test_a_last_line_that_is_cut_is_left_out(tmp_path: Path, lost: int) -> None:
    path = write_run(tmp_path / "run", ends=[2_000_000, 3_000_000], more=())
    path.write_bytes(path.read_bytes()[: -lost - 1])
    run = read_captured_run(path)

    assert run.marks == (2_000_000,)
    assert run.notes == (
        "1 line of the run could not be read.",
        "The run has no end: its process was killed, or still runs.",
    )


def test_files_are_found_that_a_killed_process_did_not_tell_of(tmp_path: Path, file: Path) -> None:
    path = write_run(tmp_path / "run", ends=[2_000_000], more=())
    (tmp_path / "run" / "rank-0.snapshot.pickle").write_bytes(file.read_bytes())

    run = read_captured_run(path)
    assert run.snapshot == tmp_path / "run" / "rank-0.snapshot.pickle"
    assert run.trace is None


def test_a_file_that_is_told_of_but_gone_is_none(tmp_path: Path) -> None:
    wrote = {"wrote": "rank-0.et.json", "what": "execution trace"}
    assert read_captured_run(write_run(tmp_path / "run", ends=[], more=[wrote])).trace is None


def test_failures_are_told(tmp_path: Path) -> None:
    more = [
        {"failed": "torch.OutOfMemoryError: 2 GiB", "time_us": 8_000_000},
        {"end": "exception", "iterations": 1, "time_us": 8_000_001},
    ]
    run = read_captured_run(write_run(tmp_path / "run", ends=[2_000_000], more=more))

    assert run.failures == ("torch.OutOfMemoryError: 2 GiB",)
    assert run.end == "exception"


def test_lines_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    more = [{"weather": "fine"}, [1, 2], {"end": "exit", "time_us": 1, "reason": "done"}]
    run = read_captured_run(write_run(tmp_path / "run", ends=[2_000_000], more=more))

    assert run.end == "exit"
    assert run.notes == ("1 line of the run could not be read.",)


def test_the_processes_of_a_run_come_by_rank(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        write_run(tmp_path / "run", ends=[], rank=rank, world_size=11)
    (tmp_path / "run" / ".77.rank-1.run.jsonl").write_text("{}")

    assert [run.header.rank for run in captured_runs(tmp_path / "run")] == [0, 2, 10]
    assert captured_runs(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no line of a captured run at its begin"),
        ('{"end": "exit"}\n', "has no line of a captured run at its begin"),
        (
            '{"et_replay_run": 2, "et_replay": "9.9"}\n',
            "is of version 2, expected 1.*et_replay 9.9",
        ),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "rank-0.run.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=complaint):
        read_captured_run(path)
