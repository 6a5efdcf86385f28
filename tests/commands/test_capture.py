"""`et_replay capture`: a script as a process of its own, and what is left of it however it ends."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import et_replay
from et_replay.__main__ import main as entry_point
from et_replay.commands import main

PACKAGE = Path(et_replay.__file__).parent

TRAIN = """
import os, sys, time
import torch

how, at = sys.argv[1], int(sys.argv[2])
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration in range(7):
    optimizer.zero_grad()
    model(torch.ones(4, 64)).square().mean().backward()
    if iteration == at:
        print("ready", flush=True)
        if how == "raise":
            raise ValueError("gone wrong.\\nfor a reason")
        if how == "exit":
            sys.exit(5)
        if how == "wait":
            time.sleep(60)
        if how == "hang":
            # waits for another process without running Python
            torch.distributed.TCPStore("127.0.0.1", 0, 2, True)
    optimizer.step()
print("done")
"""
RANKS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.utils.data.TensorDataset(torch.ones(24, 64))
for (row,) in torch.utils.data.DataLoader(rows, batch_size=4, num_workers=1):
    optimizer.zero_grad()
    model(row).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""

CUDA = """
import sys
import torch

model = torch.nn.Linear(512, 512, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration in range(6):
    optimizer.zero_grad()
    model(torch.ones(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if iteration == int(sys.argv[1]):
        try:
            torch.empty(2**50, device="cuda")
        except torch.OutOfMemoryError:
            if sys.argv[2] == "raise":
                raise
"""


@pytest.fixture
def train(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def entries(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """Read the lines of a run."""
    lines = (folder / f"rank-{rank}.run.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def windows(trace: Path) -> list[str]:
    """Name the iterations that info finds in a trace."""
    destination = trace.with_name("info.json")
    assert main(["info", "--trace", str(trace), "--json", str(destination), "--force"]) == 0
    (result,) = json.loads(destination.read_text())["results"]
    return [window["name"] for window in result["windows"]]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a capture and wait until its script is where the test wants it."""
    command = [sys.executable, "-m", "et_replay", "capture", "--output", str(folder), "--", *words]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_script_runs_as_ever_and_the_window_is_recorded(
    tmp_path: Path, train: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["capture", "--output", str(folder), "--", train, "none", "0"]) == 0
    out, err = capfd.readouterr()
    assert out == "ready\ndone\n"
    assert err.endswith(f"Wrote {folder}/rank-0.et.json, {folder}/rank-0.run.jsonl\n")
    first, *told, last = entries(folder)
    assert first["words"] == [train, "none", "0"]
    assert (first["et_replay_run"], first["rank"], first["world_size"]) == (1, 0, 1)
    assert (first["device"], first["skip"], first["iterations"]) == ("cpu", 2, 3)
    iterations = [entry for entry in told if "iteration" in entry]
    assert [entry["iteration"] for entry in iterations] == list(range(7))
    assert [entry["recorded"] for entry in iterations] == [False] * 2 + [True] * 3 + [False] * 2
    assert {entry["by"] for entry in iterations} == {"optimizer step"}
    ends = [entry["end_time_us"] for entry in iterations]
    begins = [entry["begin_time_us"] for entry in iterations]
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    assert (last["end"], last["iterations"]) == ("exit", 7)
    trace = folder / "rank-0.et.json"
    assert windows(trace) == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    assert main(["--trace", str(trace), "--device", "cpu", "--on-unsupported", "fail"]) == 0


def test_an_exception_leaves_what_was_recorded_whole(
    tmp_path: Path, train: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["capture", "--output", str(folder), "--", train, "raise", "3"]) == 1
    err = capfd.readouterr().err
    assert "ValueError: gone wrong" in err
    assert err.endswith(
        "warning: rank-0.run.jsonl: the script failed (ValueError: gone wrong) after 1 recorded"
        " iteration.\n"
    )
    assert [entry.get("failed") for entry in entries(folder)][-3:] == [
        "ValueError: gone wrong",
        None,
        None,
    ]
    assert entries(folder)[-1]["end"] == "exception"
    assert windows(folder / "rank-0.et.json") == ["ProfilerStep#2", "ProfilerStep#3"]
    json.loads((folder / "rank-0.et.json").read_text())


def test_an_exit_within_the_window_leaves_what_was_recorded_whole(
    tmp_path: Path, train: str
) -> None:
    folder = tmp_path / "run"
    assert main(["capture", "--output", str(folder), "--skip", "0", "--", train, "exit", "1"]) == 5
    assert entries(folder)[-1]["end"] == "exit"
    assert windows(folder / "rank-0.et.json") == ["ProfilerStep#0", "ProfilerStep#1"]


@pytest.mark.parametrize("how", ["wait", "hang"])
def test_sigterm_ends_the_script_once_all_is_written(tmp_path: Path, train: str, how: str) -> None:
    folder = tmp_path / "run"
    process = start(folder, train, how, "3")
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert entries(folder)[-1]["end"] == "signal 15"
    json.loads((folder / "rank-0.et.json").read_text())
    assert windows(folder / "rank-0.et.json") == ["ProfilerStep#2", "ProfilerStep#3"]


def test_sigkill_at_a_random_moment_leaves_what_info_reads(tmp_path: Path, train: str) -> None:
    folder = tmp_path / "run"
    seed = random.randrange(2**32)
    process = start(folder, train, "none", "2")
    time.sleep(random.Random(seed).uniform(0, 0.05))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    told = entries(folder)
    assert told[0]["et_replay_run"] == 1, f"seed {seed}"
    assert told[1]["iteration"] == 0, f"seed {seed}"
    assert "ProfilerStep#2" in windows(folder / "rank-0.et.json"), f"seed {seed}"


def test_each_rank_has_files_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ranks.py"
    path.write_text(RANKS)
    folder = tmp_path / "run"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    assert main(["capture", "--output", str(folder), "--", *launcher, str(path)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == [
        "rank-0.et.json",
        "rank-0.run.jsonl",
        "rank-1.et.json",
        "rank-1.run.jsonl",
    ]
    for rank in range(2):
        first, *_, last = entries(folder, rank)
        assert (first["rank"], first["world_size"]) == (rank, 2)
        assert (first["rank_known_by"], last["iterations"]) == ("torch.distributed", 6)
        trace = (folder / f"rank-{rank}.et.json").read_text()
        assert trace.count('"name": "c10d::allreduce_"') >= 3
        json.loads(trace)
    plans = tmp_path / "plans"
    assert main(["plan", "--trace", str(folder), "--output", str(plans)]) == 0
    for rank in range(2):
        words = ["compare", "--trace", str(folder / f"rank-{rank}.et.json"), "--json", "-"]
        capfd.readouterr()
        assert main([*words, "--plan", str(plans / f"rank-{rank}.plan.json")]) == 0
        rows = {row["allocator"]: row for row in json.loads(capfd.readouterr().out)["results"]}
        assert rows["stalloc"]["peak_allocated_bytes"] == rows["native"]["peak_allocated_bytes"]
        assert rows["stalloc"]["plan"]["fallback"]["requests"] == 0


def test_the_files_of_another_capture_are_overwritten_only_by_force(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "rank-7.run.jsonl").write_text("{}\n")
    script = tmp_path / "none.py"
    script.write_text("print('ran')\n")
    assert main(["capture", "--output", str(folder), "--", str(script)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == (
        f"et_replay: error: {folder} holds a captured run already; --force overwrites it.\n"
    )
    assert main(["capture", "--output", str(folder), "--force", "--", str(script)]) == 0
    out, err = capfd.readouterr()
    assert out == "ran\n"
    assert err == (
        f"The captured run that was in {folder} is still there.\n"
        "warning: nothing was captured: no process of the command imported torch, in a Python that"
        " heeds PYTHONPATH.\n"
    )
    assert [file.name for file in folder.iterdir()] == ["rank-7.run.jsonl"]


def test_a_folder_in_which_nothing_was_captured_is_not_left_behind(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("print('ran')\n")
    words = ["--", "python", str(script)]

    assert main(["capture", "--output", str(tmp_path / "new" / "run"), *words]) == 0
    assert not (tmp_path / "new").exists()

    (tmp_path / "there").mkdir()
    assert main(["capture", "--output", str(tmp_path / "there"), *words]) == 0
    assert (tmp_path / "there").is_dir()


def test_a_folder_that_goes_away_during_the_run_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    script = tmp_path / "clean.py"
    script.write_text(f"import torch, shutil\nshutil.rmtree({str(folder)!r})\n")
    assert main(["capture", "--output", str(folder), "--", str(script)]) == 0
    assert capfd.readouterr().err.endswith(
        f"warning: nothing was captured: {folder} was removed while the command ran; give --output"
        " a folder that the script leaves alone.\n"
    )


@pytest.mark.parametrize("ended", [1, 2])
def test_a_recorded_run_stays_where_another_records_nothing(
    tmp_path: Path, train: str, ended: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """With two iterations to skip, the trace begins after the second, and has none."""
    folder = tmp_path / "run"
    words = ["capture", "--output", str(folder), "--force", "--"]
    assert main([*words, train, "none", "0"]) == 0
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert "rank-0.et.json" in before
    capfd.readouterr()
    assert main([*words, train, "raise", str(ended)]) == 1
    assert f"The captured run that was in {folder} is still there.\n" in capfd.readouterr().err
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_recorded_run_comes_back_where_a_capture_was_killed_before_it_recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    aside = tmp_path / ".replaced"
    aside.mkdir()
    recorded = '{"iteration": 2, "recorded": true}\n'
    (aside / "rank-0.et.json").write_text("{}")
    (aside / "rank-0.run.jsonl").write_text(recorded)
    (tmp_path / "rank-0.et.json").write_text("")
    (tmp_path / "rank-0.run.jsonl").write_text('{"iteration": 0, "recorded": false}\n')
    assert main(["capture", "--output", str(tmp_path), "--", "script.py"]) == 2
    assert "holds a captured run already" in capfd.readouterr().err
    assert (tmp_path / "rank-0.et.json").read_text() == "{}"
    assert (tmp_path / "rank-0.run.jsonl").read_text() == recorded
    assert not aside.exists()


@pytest.mark.parametrize("command", ["plan", "fit", "compare"])
def test_a_part_of_an_iteration_is_not_taken_for_one(
    tmp_path: Path, train: str, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    main(["capture", "--output", str(folder), "--", train, "raise", "2"])
    capfd.readouterr()
    assert main([command, "--trace", str(folder)]) == 1
    assert (
        "rank-0.et.json holds no whole iteration: 2 iterations ended before the script failed"
        in (capfd.readouterr().err)
    )
    assert main([command, "--trace", str(folder), "--window", "all"]) == 0


def test_a_trace_that_did_not_come_to_its_file_is_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    folder = tmp_path / "run"
    words = ["capture", "--output", str(folder), "--", str(script), "none", "0"]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", sys.executable, "-m", "et_replay", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert f"warning: {folder}/rank-0.et.json is not whole: the disk may be full." in done.stderr


def test_how_a_script_ended_is_told_by_info(
    tmp_path: Path, train: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["capture", "--output", str(folder), "--", train, "raise", "3"]) == 1
    last = entries(folder)[-1]
    assert (last["error"], last["exit_status"]) == ("ValueError: gone wrong", 1)
    capfd.readouterr()
    assert main(["info", "--trace", str(folder)]) == 0
    assert "End         exception: ValueError: gone wrong (exit code 1)\n" in capfd.readouterr().out


def test_a_mark_that_no_annotation_has_is_told_with_those_seen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "infer.py"
    script.write_text(
        "import torch\nfor i in range(3):\n    with torch.profiler.record_function(f'part {i}'):\n"
        "        torch.ones(3)\n"
    )
    words = ["capture", "--output", str(tmp_path / "run"), "--mark", "step", "--", str(script)]
    assert main(words) == 0
    assert capfd.readouterr().err.endswith(
        "warning: rank-0.run.jsonl: no iteration ended; no torch.profiler.record_function has the"
        " name of --mark step: those seen are part *.\n"
    )


def test_a_capture_within_a_captured_script_is_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "inner.py"
    script.write_text(
        "import torch\nfrom et_replay.capture import capture, mark_iteration\n"
        "with capture('inner'):\n    for _ in range(6):\n"
        "        torch.ones(3).relu()\n        mark_iteration()\nprint('went on')\n"
    )
    folder = tmp_path / "run"
    assert main(["capture", "--output", str(folder), "--", str(script)]) == 0
    out, err = capfd.readouterr()
    assert out == "went on\n"
    assert err.count("inner is not written: et_replay follows this script already") == 1
    assert entries(folder)[-1]["iterations"] == 6


def test_an_interrupt_while_et_replay_is_imported_is_a_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupt:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "et_replay.commands":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.startswith("et_replay.commands")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupt(), *sys.meta_path])
    assert entry_point() == 130
    assert capsys.readouterr().err == "et_replay: interrupted\n"


def test_a_script_without_iterations_is_told_the_way_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "infer.py"
    script.write_text("import torch\ntorch.ones(3)\n")
    folder = tmp_path / "run"
    assert main(["capture", "--output", str(folder), "--", str(script)]) == 0
    err = capfd.readouterr().err
    assert "no iteration ended; name a torch.profiler.record_function that encloses one by" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["capture", "--", "a.py"], "the following arguments are required: --output"),
        (["capture", "--output", "{}"], "Expected a command to run after --, such as -- python"),
        (
            ["capture", "--output", "{}", "a.py"],
            "unrecognized arguments: a.py; the command to run goes after --",
        ),
        (["capture", "--output", "{}", "--skip", "-1", "--", "a.py"], "at least 0, got '-1'"),
        (["capture", "--output", "{}", "--iterations", "0", "--", "a.py"], "at least 1, got '0'"),
        (["capture", "--output", "{}", "--", "no-such-program"], "no program no-such-program"),
        (
            ["capture", "--output", "{}/file", "--", "a.py"],
            "/file cannot be made a folder: File exists",
        ),
        (
            ["info", "--trace", "a.json", "--", "a.py"],
            "Only et_replay capture and run take a command",
        ),
    ],
)
def test_wrong_words_are_one_sentence_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    (tmp_path / "file").write_text("")
    assert main([word.replace("{}", str(tmp_path)) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert len(err.splitlines()) == 1


@pytest.mark.cuda
@pytest.mark.parametrize(("how", "code", "end"), [("raise", 1, "exception"), ("go on", 0, "exit")])
def test_out_of_memory_on_cuda_leaves_the_full_history(
    tmp_path: Path, how: str, code: int, end: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(CUDA)
    folder = tmp_path / "run"
    assert main(["capture", "--output", str(folder), "--", str(script), "3", how]) == code
    first, *told, last = entries(folder)
    assert first["device"].startswith("cuda:0 ")
    assert last["end"] == end
    assert any("torch.OutOfMemoryError" in entry.get("failed", "") for entry in told)
    snapshot = pickle.loads((folder / "rank-0.snapshot.pickle").read_bytes())
    events = snapshot["device_traces"][0]
    assert events[0]["action"] == "segment_alloc"
    assert [event["action"] for event in events].count("oom") == 1
    assert first["time_us"] <= events[0]["time_us"] <= events[-1]["time_us"] <= last["time_us"]
    ended = [entry for entry in told if "iteration" in entry]
    assert all(entry["peak_allocated_bytes"] > 2 * 512 * 512 * 4 for entry in ended)
    assert "ProfilerStep#2" in windows(folder / "rank-0.et.json")
