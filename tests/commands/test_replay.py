"""`et_replay`: what it prints where, what it writes, and how it ends."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from et_replay.commands import main


def replay(trace: Path, *words: str) -> int:
    return main(["--trace", str(trace), "--device", "meta", *words])


def result(path: Path) -> dict[str, object]:
    document = json.loads(path.read_text())
    assert document["command"] == "replay"
    (only,) = document["results"]
    assert isinstance(only, dict)
    return only


def test_without_a_command_it_replays(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(trace_file) == 0
    out, err = capsys.readouterr()
    assert "3 in the window: 3 executed, 0 substituted, 0 skipped" in out
    assert "window ProfilerStep#3" in out
    assert err == ""


def test_the_command_may_be_named(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--trace", str(trace_file), "--device", "cpu"]) == 0
    assert "Gaps between operators" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "mode", "peak"),
    [
        # Both inputs and two results: the second input of `a @ b` is needed to the end.
        (["--tensor-allocation-mode", "pre"], "pre", 4 * 2**20),
        (["--tensor-allocation-mode", "lazy"], "lazy", 3 * 2**20),
        (["--enable-lazy-tensor-allocation"], "lazy", 3 * 2**20),
    ],
)
def test_a_mode_has_the_peak_of_its_lifetimes(
    trace_file: Path, tmp_path: Path, words: list[str], mode: str, peak: int
) -> None:
    assert replay(trace_file, *words, "--json", str(tmp_path / "result.json")) == 0
    found = result(tmp_path / "result.json")
    assert found["tensor_allocation_mode"] == mode
    assert found["peak_allocated_bytes"] == peak


def test_other_replays_names_of_options_are_understood(trace_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words = ["--input", str(trace_file), "--cpu", "--iter", "2", "--warmup-iter", "0"]
    assert main([*words, "--json", str(file)]) == 0
    found = result(file)
    assert found["device"] == "cpu"
    assert len(list(found["iteration_time_ns"])) == 2  # type: ignore[call-overload]


def test_the_default_workspace_is_cublas_s_a_thread(trace_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    assert replay(trace_file, "--library-workspace", "--json", str(file)) == 0
    found = result(file)
    assert found["library_workspace_bytes"] == 32 * 2**20
    assert found["peak_allocated_bytes"] == 36 * 2**20


def test_a_dash_writes_json_and_nothing_else_to_stdout(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(trace_file, "--json", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["results"][0]["operations"]["total"] == 3
    assert err == ""


def test_an_out_of_memory_is_reported_and_ends_with_3(
    trace_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    assert replay(trace_file, "--device-memory", "3MiB", "--json", str(file)) == 3
    out, err = capsys.readouterr()
    assert "Out of memory" in out
    assert err == ""
    failure = result(file)["out_of_memory"]
    assert isinstance(failure, dict)
    assert (failure["node_id"], failure["operator"]) == (10, "aten::mm")
    assert failure["requested_bytes"] == 2**20
    assert failure["capacity_bytes"] == 3 * 2**20
    assert [live["size_bytes"] for live in failure["live"]] == [2**20, 2**20]


def test_an_existing_file_is_overwritten_only_by_force(
    trace_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    file.write_text("precious")
    assert replay(trace_file, "--json", str(file)) == 2
    assert file.read_text() == "precious"
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"et_replay: error: {file} exists; --force overwrites it.\n")
    assert replay(trace_file, "--json", str(file), "--force") == 0
    assert result(file)["trace"] == str(trace_file)


def test_a_failure_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "broken.json"
    trace.write_text("no trace")
    assert replay(trace, "--json", str(tmp_path / "result.json")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("et_replay: error: ")
    assert len(err.splitlines()) == 1


def test_a_file_that_cannot_be_written_whole_is_not_written_at_all(
    trace_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.link", refuse)
    file = tmp_path / "result.json"
    assert replay(trace_file, "--json", str(file)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step.json"]
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"et_replay: error: Cannot write {file}: No space left on device.\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--tensor-allocation-mode", "eager"], "invalid choice: 'eager'"),
        (["--device-memory-threshold", "0.9"], "needs --tensor-allocation-mode lazy"),
        (["--device-memory-threshold", "0"], "above 0 and up to 1"),
        (["--device-memory-threshold", "1.5"], "above 0 and up to 1"),
        (["--device-memory-threshold", "nan"], "above 0 and up to 1"),
        (["--device-memory-threshold", "most"], "Expected a number"),
        (["--device", "tpu"], "Expected auto, cuda, cuda:N, cpu or meta"),
        (["--device-memory", "plenty"], "argument --device-memory: Expected a size such as 24GiB"),
        (["--device-memory", "0"], "Expected a size above 0"),
        (["--iterations", "0"], "Expected at least 1"),
        (["--warmup", "-1"], "Expected at least 0"),
        (["--seed", "x"], "Expected a whole number"),
        (["--seed", str(2**63)], "Expected at most"),
        (["--on-unsupported", "ignore"], "invalid choice: 'ignore'"),
        (["--window", "ProfilerStep#99"], "has no window"),
        (["--json", "/nowhere/result.json"], "there is no folder /nowhere"),
        (["--json", "/dev/null"], "is not a regular file"),
        (["--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_wrong_usage_is_one_sentence_and_2(
    trace_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert replay(trace_file, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("et_replay: error: ")
    assert complaint in err
    assert len(err.splitlines()) == 1


def test_a_repaired_trace_is_replayed_with_a_warning(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = trace_file.read_text()
    trace_file.write_text(whole[: whole.index('"id": 12')])
    assert replay(trace_file) == 0
    out, err = capsys.readouterr()
    assert "2 in the window: 2 executed" in out
    assert all(line.startswith("warning: ") for line in err.splitlines())
    assert err != ""
    assert replay(trace_file, "--quiet") == 0
    assert capsys.readouterr().err == ""
    assert replay(trace_file, "--strict") == 1
    assert capsys.readouterr().out == ""


def test_the_input_is_not_overwritten_through_a_folder_that_is_not_there(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system finds no file of this name, but what it comes to without ".." is the input."""
    before, nowhere = trace_file.read_bytes(), trace_file.parent / "nowhere"
    assert replay(trace_file, "--json", f"{nowhere}/../{trace_file.name}", "--force") == 2
    assert f"there is no folder {nowhere}/..." in capsys.readouterr().err
    assert trace_file.read_bytes() == before


def test_the_input_is_never_overwritten(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = trace_file.read_bytes()
    assert replay(trace_file, "--json", str(trace_file), "--force") == 2
    expected = f"et_replay: error: --json {trace_file} is the input, which is never overwritten.\n"
    assert capsys.readouterr().err == expected
    assert trace_file.read_bytes() == before
