"""The program as a whole: help, versions, missing libraries, and readers that leave."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

import et_replay
from et_replay.commands import info, main

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from et_replay.commands import main
sys.exit(main(sys.argv[1:]))
"""


def without_torch(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TORCH, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["--help"], ["replay", "--help"], ["info", "--help"]])
def test_help_needs_no_torch(words: list[str]) -> None:
    answer = without_torch(*words)
    assert answer.returncode == 0
    assert answer.stdout.startswith("usage: et_replay")
    assert answer.stderr == ""


def test_info_needs_no_torch(trace_file: Path) -> None:
    answer = without_torch("info", "--trace", str(trace_file))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_replay_without_torch_is_one_sentence(trace_file: Path) -> None:
    answer = without_torch("--trace", str(trace_file))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "needs PyTorch, which is missing: pip install torch." in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"et_replay {et_replay.__version__}\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "the following arguments are required: --trace"),
        (["info"], "the following arguments are required: --trace"),
        (["inform"], "invalid choice: 'inform'"),
    ],
)
def test_wrong_words_are_one_sentence_and_2(
    capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert len(err.splitlines()) == 1


def test_a_missing_file_is_one_sentence_and_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--trace", str(tmp_path / "absent.json")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "absent.json" in err
    assert len(err.splitlines()) == 1


def test_a_folder_that_may_not_be_read_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refused)
    assert main(["compare", "--trace", str(tmp_path)]) == 1
    assert capsys.readouterr() == ("", f"et_replay: error: {tmp_path}: Permission denied.\n")


def test_the_folder_one_is_in_is_a_folder_like_others(
    monkeypatch: pytest.MonkeyPatch, trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trace_file.parent)
    assert main(["--trace", ".", "--device", "meta"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "et_replay: error: . is a folder, expected one trace: give its file step.json.\n"
    )


def test_a_closed_stdout_is_said(trace_file: Path) -> None:
    words = f"'{sys.executable}' -m et_replay info --trace '{trace_file}' >&-"
    answer = subprocess.run(words, shell=True, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr == "et_replay: error: Cannot write to stdout: it is closed.\n"


def test_control_c_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(info, "open_trace", interrupted)
    assert main(["info", "--trace", "step.json"]) == 130
    assert capsys.readouterr() == ("", "et_replay: interrupted\n")


def test_a_name_that_stdout_cannot_hold_is_written_escaped(trace_file: Path) -> None:
    file = trace_file.rename(trace_file.with_name("step\udcff.json"))
    answer = without_torch("info", "--trace", str(file))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert r"step\udcff.json" in answer.stdout


def test_a_reader_that_leaves_is_no_traceback(trace_file: Path) -> None:
    command = [sys.executable, "-m", "et_replay", "info", "--trace", str(trace_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
