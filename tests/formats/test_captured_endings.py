"""What a captured run lacks is told with the true reason, and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from captured_folders import write_run

from et_replay.formats.captured_endings import shortcoming
from et_replay.formats.captured_run import add_status, read_captured_run

EXIT = {"end": "exit"}
INTERRUPTED = {"end": "exception", "error": "KeyboardInterrupt"}
FAILED = {"end": "exception", "error": "ValueError: gone wrong"}


def told(folder: Path, ended: int, end: object = None, status: int | None = None) -> str | None:
    """Return what is told of a run without files that skips 2 iterations and records 3."""
    ends = range(2_000_000, 2_000_000 + 1000 * ended, 1000)
    path = write_run(folder / "run", ends=ends, more=[end] if end else [])
    if status is not None:
        add_status(path, status)
    return shortcoming(read_captured_run(path))


@pytest.mark.parametrize(
    ("end", "status", "how"),
    [
        ({"end": "signal 15"}, -15, "the process was stopped by SIGTERM"),
        (INTERRUPTED, -2, "the script was interrupted (KeyboardInterrupt)"),
        (FAILED, 1, "the script failed (ValueError: gone wrong)"),
        (
            {"end": "exception", "error": "RuntimeError: closed by peer [127.0.0.1]:1. Check it."},
            1,
            "the script failed (RuntimeError: closed by peer [127.0.0.1]:1)",
        ),
        (EXIT, 2, "the script ended with exit code 2"),
        (None, -11, "the process was killed by SIGSEGV"),
        (
            None,
            7,
            "the process ended with exit code 7, without Python's own end (as by os._exit),",
        ),
        (
            None,
            None,
            "the process was killed, or ended without Python's own end (as by os._exit),",
        ),
    ],
)
def test_an_end_before_the_first_iteration_is_the_reason(
    tmp_path: Path, end: object, status: int | None, how: str
) -> None:
    assert told(tmp_path, 0, end, status) == f"{how} before its first iteration ended."


def test_a_script_without_iterations_is_told_how_to_mark_them(tmp_path: Path) -> None:
    assert told(tmp_path, 0, EXIT, 0) == (
        "no iteration ended; name a torch.profiler.record_function that encloses one by --mark, or"
        " call et_replay.capture.mark_iteration() at the end of each."
    )


def test_too_few_iterations_need_a_smaller_skip(tmp_path: Path) -> None:
    assert told(tmp_path, 2, EXIT, 0) == (
        "2 iterations ended, and --skip 2 let all of them pass; --skip 1 records the last."
    )
    assert told(tmp_path, 1, FAILED, 1) == (
        "1 iteration ended before the script failed (ValueError: gone wrong), and --skip 2 let all"
        " of them pass; --skip 0 records the last."
    )


def test_a_window_that_was_not_filled_is_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("{}")
    path = write_run(tmp_path / "run", ends=[2_000_000, 3_000_000, 4_000_000], trace=trace)
    run = read_captured_run(path)
    assert shortcoming(run) == "the script ended after 1 recorded iteration."


def test_options_are_those_of_a_call_in_python(tmp_path: Path) -> None:
    run = read_captured_run(write_run(tmp_path / "run", ends=[2_000_000]))
    assert shortcoming(run, in_python=True) == (
        "1 iteration ended, and skip=2 let all of them pass; skip=0 records the last."
    )


def test_the_exit_status_is_added_to_the_end_that_a_process_told(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ends=[2_000_000], more=[FAILED])
    lines = len(path.read_text().splitlines())
    add_status(path, 1)
    run = read_captured_run(path)
    assert (run.end, run.error, run.status) == ("exception", "ValueError: gone wrong", 1)
    assert len(path.read_text().splitlines()) == lines


def test_the_exit_status_of_a_process_that_was_cut_short_is_a_line_of_its_own(
    tmp_path: Path,
) -> None:
    path = write_run(tmp_path / "run", ends=[2_000_000], more=())
    path.write_bytes(path.read_bytes()[:-10])
    add_status(path, -9)
    run = read_captured_run(path)
    assert (run.end, run.status, len(run.iterations)) == ("", -9, 0)
