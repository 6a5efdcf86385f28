"""A part of a notebook is captured; what forks and other captures do stays apart."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.profiler import profile, record_function, schedule

from et_replay.capture import capture, mark_iteration
from et_replay.capture.recorder import Recorder, Settings
from et_replay.errors import UsageError
from et_replay.formats import open_trace
from et_replay.formats.captured_run import captured_runs
from et_replay.program import select_window

Observe = Callable[[int, int, int, int], None]


def entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rank-0.run.jsonl").read_text().splitlines()]


def written(entries: Iterable[dict[str, Any]]) -> list[str | None]:
    """List the file of each line, None for another one; lines of settings are left out."""
    return [entry.get("wrote") for entry in entries if "torch_settings" not in entry]


def marks(folder: Path) -> dict[str, str]:
    """Return the marks of iterations, each with the name of what encloses it."""
    nodes = json.loads((folder / "rank-0.et.json").read_text())["nodes"]
    names = {node["id"]: node["name"] for node in nodes}
    return {
        node["name"]: names.get(node["ctrl_deps"], "missing")
        for node in nodes
        if node["name"].startswith("ProfilerStep#")
    }


def infer(iterations: int) -> None:
    for _ in range(iterations):
        torch.ones(8).relu()
        mark_iteration()


def test_what_happens_within_is_captured(tmp_path: Path) -> None:
    with capture(tmp_path / "run", skip=1, iterations=2):
        infer(4)
    infer(4)
    assert list(marks(tmp_path / "run")) == ["ProfilerStep#1", "ProfilerStep#2"]
    first, *told, last = entries(tmp_path / "run")
    assert first["skip"] == 1
    assert [entry["recorded"] for entry in told if "iteration" in entry] == [
        False,
        True,
        True,
        False,
    ]
    assert {entry["by"] for entry in told if "iteration" in entry} == {"mark_iteration()"}
    assert (last["end"], last["iterations"]) == ("exit", 4)
    trace = open_trace(tmp_path / "run/rank-0.et.json")
    assert trace.notes == ()
    assert select_window(trace, "2")


def test_settings_of_torch_are_told_as_they_are_while_it_is_recorded(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        with capture(tmp_path / "run", skip=1, iterations=1):
            infer(1)
            torch.set_float32_matmul_precision("high")
            infer(1)
            torch.set_float32_matmul_precision("medium")
            infer(1)
    finally:
        torch.set_float32_matmul_precision(before)
    told = [entry["torch_settings"] for entry in entries(tmp_path / "run") if len(entry) == 1]
    assert [settings["float32_matmul_precision"] for settings in told] == [before, "high"]
    (run,) = captured_runs(tmp_path / "run")
    assert run.torch_settings == told[1]


def test_settings_that_a_failure_undoes_are_those_of_the_last_iteration(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="the script failed"),
        pytest.raises(KeyError),
        capture(tmp_path / "run", skip=0, iterations=5),
        torch.backends.cudnn.flags(enabled=False, deterministic=True),
    ):
        infer(1)
        raise KeyError("absent")
    (run,) = captured_runs(tmp_path / "run")
    assert run.torch_settings["backends.cudnn.enabled"] is False
    assert run.torch_settings["backends.cudnn.deterministic"] is True


def test_an_exception_within_is_told_and_passes(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match=r"the script failed \(KeyError: 'absent'\) after 1 rec"),
        pytest.raises(KeyError),
        capture(tmp_path / "run", skip=0, iterations=5),
    ):
        infer(1)
        raise KeyError("absent")
    assert [entry["failed"] for entry in entries(tmp_path / "run") if "failed" in entry] == [
        "KeyError: 'absent'"
    ]
    assert entries(tmp_path / "run")[-1]["end"] == "exception"
    assert list(marks(tmp_path / "run")) == ["ProfilerStep#0", "ProfilerStep#1"]


def test_marks_of_the_script_are_kept_within_those_of_iterations(tmp_path: Path) -> None:
    with capture(tmp_path / "run", skip=1, iterations=2, mark="step"):
        for _ in range(4):
            with record_function("whole"), record_function("step"):
                torch.ones(8).relu()
    thread = "[pytorch|profiler|execution_trace|thread]"
    assert marks(tmp_path / "run") == {"ProfilerStep#1": thread, "ProfilerStep#2": thread}


def test_a_mark_that_stays_open_delays_the_end_by_one_iteration(tmp_path: Path) -> None:
    with capture(tmp_path / "run", skip=1, iterations=1, mark="step"):
        with record_function("step"):
            pass
        with record_function("epoch"):
            for _ in range(3):
                with record_function("step"):
                    torch.ones(8).relu()
    assert written(entries(tmp_path / "run")) == [
        *[None] * 4,
        "rank-0.et.json",
        None,
        None,
    ]
    nodes = json.loads((tmp_path / "run/rank-0.et.json").read_text())["nodes"]
    assert [node["name"] for node in nodes].count("aten::relu") == 2


def test_the_marks_of_the_scripts_profiler_are_the_only_ones(tmp_path: Path) -> None:
    with (
        capture(tmp_path / "run", skip=1, iterations=2),
        profile(schedule=schedule(wait=9, warmup=1, active=1)) as profiler,
    ):
        for _ in range(4):
            torch.ones(8).relu()
            profiler.step()
    assert list(marks(tmp_path / "run")) == ["ProfilerStep#1", "ProfilerStep#2"]


def test_the_scripts_profiler_takes_the_place_of_that_for_compiled_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("et_replay.capture.trace._compiles_kernels", lambda: True)
    with capture(tmp_path / "run", skip=1, iterations=3):
        infer(2)
        assert torch.autograd.profiler._is_profiler_enabled
        with profile() as own:
            infer(1)
        assert not torch.autograd.profiler._is_profiler_enabled
        infer(2)
    assert any(event.name == "aten::relu" for event in own.events() or ())
    assert list(marks(tmp_path / "run")) == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]


@pytest.mark.filterwarnings("ignore:rank-0.run.jsonl")
def test_a_trace_that_the_script_records_itself_is_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "own.json"))
    own.start()
    with capture(tmp_path / "run", skip=1, iterations=1):
        infer(3)
    own.stop()
    own.unregister_callback()
    assert "no execution trace is recorded: the script records" in capfd.readouterr().err
    assert not (tmp_path / "run/rank-0.et.json").exists()
    assert entries(tmp_path / "run")[-1]["iterations"] == 3
    assert len(json.loads((tmp_path / "own.json").read_text())["nodes"]) > 3


def test_a_forked_process_leaves_the_files_alone(tmp_path: Path) -> None:
    with capture(tmp_path / "run", skip=1, iterations=2):
        infer(2)
        child = os.fork()
        if child == 0:
            for _ in range(200):  # more than the observer's buffer holds
                torch.ones(8).relu()
            os._exit(0)
        os.waitpid(child, 0)
        infer(1)
    nodes = json.loads((tmp_path / "run/rank-0.et.json").read_text())["nodes"]
    assert [node["name"] for node in nodes].count("aten::relu") == 2
    assert entries(tmp_path / "run")[-1]["iterations"] == 3


@pytest.mark.filterwarnings("ignore:rank-0.run.jsonl")
def test_a_full_disk_ends_the_capture_and_not_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with capture(tmp_path / "run", skip=0, iterations=2):
        infer(1)
        monkeypatch.setattr("et_replay.capture.run_log.os.write", full)
        infer(2)
        monkeypatch.undo()
    err = capfd.readouterr().err
    assert err.count("et_replay: warning: the capture ends here: OSError: [Errno 28]") == 1


@pytest.mark.parametrize(
    ("skip", "iterations", "complaint"),
    [(-1, 1, "got -1 and 1"), (0, 0, "got 0 and 0")],
)
def test_windows_that_cannot_be_are_usage_errors(
    tmp_path: Path, skip: int, iterations: int, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        capture(tmp_path, skip=skip, iterations=iterations).__enter__()


def test_a_mark_without_a_name_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Expected a name for mark="):
        capture(tmp_path, mark="").__enter__()


def test_what_was_written_is_told_and_why_it_is_not_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.warns(UserWarning, match="2 iterations ended, and skip=2 let all of them pass"),
        capture(tmp_path),
    ):
        infer(2)
    told = f"et_replay: wrote {tmp_path}/rank-0.et.json, {tmp_path}/rank-0.run.jsonl\n"
    assert told in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:rank-0.run.jsonl")
def test_another_capture_is_overwritten_only_by_force(tmp_path: Path) -> None:
    with capture(tmp_path):
        with pytest.raises(UsageError, match="captured already"):
            capture(tmp_path / "other").__enter__()
        infer(1)
    with pytest.raises(UsageError, match="holds a captured run already; force=True"):
        capture(tmp_path).__enter__()
    with capture(tmp_path, force=True):
        infer(2)
    assert entries(tmp_path)[-1]["iterations"] == 2


class FakeCuda:
    """Stands for CUDA of one device, which the script uses from `initialize` on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.histories: list[object] = []
        self.observe: Observe | None = None
        self._queued: list[Callable[[], None]] = []
        self._initialized = False
        cuda = "torch.cuda"
        monkeypatch.setattr(f"{cuda}.is_initialized", lambda: self._initialized)
        monkeypatch.setattr(f"{cuda}._lazy_call", self._queued.append)
        monkeypatch.setattr(f"{cuda}.current_device", lambda: 0)
        properties = SimpleNamespace(name="NVIDIA H200", total_memory=150_000)
        monkeypatch.setattr(f"{cuda}.get_device_properties", lambda device: properties)
        monkeypatch.setattr(f"{cuda}.memory_stats_as_nested_dict", self._statistics)
        monkeypatch.setattr(f"{cuda}.memory._record_memory_history", self._record)
        monkeypatch.setattr(f"{cuda}.memory._snapshot", lambda: {"of": list(self.histories)})
        name = "torch._C._cuda_attach_out_of_memory_observer"
        monkeypatch.setattr(name, self._attach, raising=False)

    def initialize(self) -> None:
        for call in self._queued:
            call()
        self._initialized = True

    def _statistics(self) -> dict[str, Any]:
        peaks = {"allocated_bytes": 1000, "reserved_bytes": 2000} if self._initialized else {}
        return {name: {"all": {"peak": peak}} for name, peak in peaks.items()}

    def _record(self, enabled: object, **options: object) -> None:
        self.histories.append(enabled)

    def _attach(self, observe: Observe) -> None:
        self.observe = observe


def test_the_history_of_cuda_memory_goes_from_its_first_use_to_the_windows_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda(monkeypatch)
    with capture(tmp_path, skip=1, iterations=1):
        assert cuda.histories == []
        cuda.initialize()
        assert cuda.histories == ["all"]
        infer(2)
        assert cuda.histories == ["all", None]
        infer(1)
    assert pickle.loads((tmp_path / "rank-0.snapshot.pickle").read_bytes()) == {"of": ["all"]}
    first, *told, last = entries(tmp_path)
    assert (first["device"], first["device_memory_bytes"]) == ("cuda:0 NVIDIA H200", 150_000)
    assert (told[0]["peak_allocated_bytes"], told[0]["peak_reserved_bytes"]) == (1000, 2000)
    assert written(told) == [
        None,
        None,
        "rank-0.et.json",
        "rank-0.snapshot.pickle",
        None,
    ]
    assert last["end"] == "exit"
    assert {file.name for file in tmp_path.iterdir()} == {
        "rank-0.et.json",
        "rank-0.run.jsonl",
        "rank-0.snapshot.pickle",
    }


@pytest.mark.filterwarnings("ignore:rank-0.run.jsonl")
def test_out_of_memory_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    with capture(tmp_path):
        cuda.initialize()
        assert cuda.observe is not None
        cuda.observe(0, 4096, 150_000, 512)
        assert (tmp_path / "rank-0.snapshot.pickle").exists()
        failed, wrote = entries(tmp_path)[1:]
        assert failed["failed"] == (
            "torch.OutOfMemoryError: cuda:0 has 512 bytes free, 4096 were asked for"
        )
        assert wrote["wrote"] == "rank-0.snapshot.pickle"
        assert entries(tmp_path)[0]["device"] == "cuda:0 NVIDIA H200"


@pytest.mark.filterwarnings("ignore:rank-0.run.jsonl")
def test_what_cuda_refuses_does_not_fail_the_scripts_first_use_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cuda = FakeCuda(monkeypatch)

    def refuse(*words: object, **options: object) -> None:
        raise RuntimeError("pluggable does not yet support recordHistory")

    monkeypatch.setattr("torch.cuda.memory._record_memory_history", refuse)
    with capture(tmp_path):
        cuda.initialize()
        infer(1)
    assert "warning: CUDA's memory is not recorded: RuntimeError" in capfd.readouterr().err
    assert not (tmp_path / "rank-0.snapshot.pickle").exists()


@pytest.mark.filterwarnings("ignore:rank-0.run.jsonl")
def test_a_second_process_that_trains_as_the_same_rank_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.orig_argv", ["python", "first.py", "two words"])
    monkeypatch.setattr("os.getpid", lambda: 11)
    with capture(tmp_path):
        infer(1)
    monkeypatch.setattr("sys.orig_argv", ["python", "second.py"])
    monkeypatch.setattr("os.getpid", lambda: 12)
    other = Recorder(Settings(tmp_path, 2, 3, None, ("other",)))
    other.begin()
    infer(2)
    other.finish("exit")
    assert capfd.readouterr().err.splitlines()[1:] == [
        "et_replay: warning: process 12 (python second.py) is not captured, as process 11 (python"
        f" first.py 'two words') has been as rank 0 in {tmp_path}: capture its command alone, with"
        " another folder."
    ]
    assert entries(tmp_path)[-1]["iterations"] == 1
