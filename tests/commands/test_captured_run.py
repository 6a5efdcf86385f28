"""What the commands make of the folder of a captured run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from captured_folders import write_run
from snapshot_builder import block, entry, freed, pickled, segment, snapshot

from et_replay.commands import main
from et_replay.planning import read_plan, run_plan

TRACES = Path(__file__).resolve().parents[2] / "traces"
MIB = 2**20
SEGMENT = 0x7F0000000000


def recording(path: Path, iterations: int) -> list[int]:
    """Write a snapshot of a job, one event a millisecond; return when its iterations end.

    It has a weight, and in every iteration an activation of 3 MiB and what varies: 2, 3, ... MiB.
    """
    now = 1_000_000
    entries: list[dict[str, Any]] = []

    def add(*made: dict[str, Any]) -> None:
        nonlocal now
        for each in made:
            now += 1000
            entries.append({**each, "time_us": now})

    ends = []
    add(entry("segment_alloc", SEGMENT, 40 * MIB), entry("alloc", SEGMENT, 4 * MIB))
    for iteration in range(iterations):
        activation, varies = (
            (SEGMENT + 4 * MIB, 3 * MIB),
            (SEGMENT + 8 * MIB, (iteration + 2) * MIB),
        )
        add(entry("alloc", *activation), entry("alloc", *varies))
        add(*freed(*varies), *freed(*activation))
        ends.append(now + 500)
    state = segment(SEGMENT, block(4 * MIB), block(36 * MIB, "inactive"))
    path.write_bytes(pickled(snapshot([state], entries)))
    return ends


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run of two processes; only the first has used a GPU."""
    file = tmp_path / "recorded"
    ends = recording(file, iterations=5)
    run = tmp_path / "run"
    write_run(run, ends=ends, world_size=2, snapshot=file, trace=TRACES / "convnet_cuda.json.gz")
    write_run(
        run, ends=ends, rank=1, world_size=2, trace=TRACES / "transformer_cpu.json.gz", more=()
    )
    return run


def results(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main([*words, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert isinstance(found, list)
    return found


def test_a_run_is_planned_by_its_marks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_trace, of_gpu = results(capsys, "plan", "--trace", str(folder), "--quiet")
    assert (of_trace["rank"], of_gpu["rank"]) == (1, 0)  # the larger arena first

    assert of_gpu["input"] == str(folder / "rank-0.snapshot.pickle")
    assert of_gpu["arena_bytes"] == 7 * MIB
    # Tick 1 is the weight, then 4 are of each iteration.
    assert of_gpu["iteration"] == {
        "begins_ticks": [0, 6, 10],
        "marked": True,
        "requests": {
            "planned": {"requests": 1, "bytes": 3 * MIB},
            "varying": {"requests": 1, "bytes": 4 * MIB},
        },
    }
    assert of_trace["input"] == str(folder / "rank-1.et.json")
    assert of_trace["iteration"]["marked"] is True


def test_the_plan_of_a_process_tells_what_a_run_needs(folder: Path, tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    assert main(["plan", "--trace", str(folder), "--output", str(plans), "--quiet"]) == 0

    run = run_plan(read_plan(plans / "rank-0.plan.json"))
    assert run.begins == (0, 3, 5)
    assert (run.size // MIB).tolist() == [4, 3, 2, 3, 3, 3, 4]
    assert run.varies.tolist() == [False, False, True, False, True, False, True]
    assert run.marked
    assert run_plan(read_plan(plans / "rank-1.plan.json")).marked


def test_the_plan_of_a_process_is_checked_against_it(folder: Path, tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    assert main(["plan", "--trace", str(folder), "--output", str(plans), "--quiet"]) == 0

    for rank in (0, 1):
        plan, run = plans / f"rank-{rank}.plan.json", folder / f"rank-{rank}.run.jsonl"
        assert main(["plan", "--check", str(plan), "--trace", str(run), "--quiet"]) == 0


def test_a_run_without_a_whole_iteration_is_planned_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recorded"
    ends = recording(file, iterations=2)
    write_run(tmp_path / "run", ends=ends[:1], snapshot=file)

    assert main(["plan", "--trace", str(tmp_path / "run"), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["results"][0]["iteration"] is None
    assert "planned as happening once" in err
    assert "1 iteration of it ended, expected 2 or more" in err


def test_info_tells_of_all_processes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, first, second = results(capsys, "info", "--trace", str(folder), "--quiet")

    assert first["trace"] == str(folder / "rank-0.et.json")
    assert first["run"]["words"] == ["python", "train.py"]
    assert len(first["run"]["iterations"]) == 5
    assert first["run"]["end"] == "exit"
    assert second["run"]["rank"] == 1
    assert second["run"]["memory_snapshot"] is None
    assert second["run"]["end"] == ""
    assert job["ranks"] == [0, 1]
    assert job["matched"] is True


def test_info_of_one_process_is_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--trace", str(folder / "rank-1.run.jsonl")]) == 0
    out, err = capsys.readouterr()

    assert "Command     python train.py" in out
    assert "Process     rank 1 of 2, pid 4321" in out
    assert "5 ended: 5 by optimizer step" in out
    assert "3 of 3 recorded, after 2 that were skipped" in out
    assert "Peak        4.77 MiB allocated, 7.63 MiB reserved" in out
    assert "End         none: the process was killed, or still runs" in out
    assert "Windows" in out  # of its execution trace
    assert "The run has no end" in err


def test_info_of_a_run_without_files_tells_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run", ends=[2_000_000])
    (result,) = results(capsys, "info", "--trace", str(tmp_path / "run"))
    assert list(result) == ["run"]


def test_compare_and_fit_take_the_snapshots(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(folder / "rank-0.run.jsonl")
    compared = results(capsys, "compare", "--trace", run, "--allocator", "native", "--quiet")
    fitted = results(capsys, "fit", "--trace", run, "--allocator", "native", "--quiet")

    names = [result["input"] for result in (*compared, *fitted)]
    assert names == 2 * [str(folder / "rank-0.snapshot.pickle")]


def test_simulated_memory_has_the_runs_own_torch_and_gpu(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(tmp_path / "page.html")
    for rank in (0, 1):  # a snapshot, and an execution trace
        words = ["--trace", str(folder / f"rank-{rank}.run.jsonl"), "--quiet"]
        for command in (["compare"], ["timeline", "--output", page, "--force"]):
            (row,) = results(capsys, *command, *words, "--allocator", "native")
            assert (row["torch_version"], row["device_memory_bytes"]) == ("2.11", 150109880320)
        (fit,) = results(capsys, "fit", *words, "--allocator", "native")
        assert fit["torch_version"] == "2.11"


def test_what_the_user_says_of_torch_and_the_gpu_counts_more_than_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trace", str(folder), "--quiet", "--torch-version", "2.9", "--allocator", "native"]
    rows = results(capsys, "compare", *words, "--device-memory", "1GiB")
    assert [row["torch_version"] for row in rows] == 2 * ["2.9"]
    assert [row["device_memory_bytes"] for row in rows] == 2 * [2**30]
    assert [fit["torch_version"] for fit in results(capsys, "fit", *words)] == 2 * ["2.9"]


@pytest.mark.parametrize(
    ("torch", "memory", "version", "capacity"),
    [
        ("2.5.1+cu121", 2**34, "2.7", 2**34),
        ("3.0.0", None, "2.14", 80 * 2**30),  # on the CPU
        ("2.12.0a0+git1234", None, "2.12", 80 * 2**30),
        ("", None, "2.14", 80 * 2**30),
    ],
)
def test_a_version_without_a_simulated_behaviour_is_the_nearest(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    torch: str,
    memory: int | None,
    version: str,
    capacity: int,
) -> None:
    path = folder / "rank-1.run.jsonl"
    header, *lines = path.read_text().splitlines(keepends=True)
    told = {**json.loads(header), "torch": torch, "device_memory_bytes": memory}
    path.write_text("".join([json.dumps(told) + "\n", *lines]))
    words = ["--trace", str(path), "--allocator", "native", "--quiet"]
    (row,) = results(capsys, "compare", *words)
    assert (row["torch_version"], row["device_memory_bytes"]) == (version, capacity)


def tell_settings(folder: Path, rank: int, settings: object) -> Path:
    path = folder / f"rank-{rank}.run.jsonl"
    path.write_text(path.read_text() + json.dumps({"torch_settings": settings}) + "\n")
    return path


def test_a_replay_has_the_runs_own_settings_of_torch(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"deterministic_debug_mode": "warn", "backends.cudnn.enabled": True}
    run = tell_settings(folder, 1, settings)
    for trace in (str(run), str(folder / "rank-1.et.json")):
        words = ("--trace", trace, "--quiet", "--iterations", "1", "--warmup", "0")
        (result,) = results(capsys, "replay", *words, "--device", "cpu")
        assert result["torch_settings"] == {"deterministic_debug_mode": "warn"}
        assert main(["replay", *words, "--device", "cpu"]) == 0
        assert "As in the job  deterministic_debug_mode warn\n" in capsys.readouterr().out
        (result,) = results(capsys, "replay", *words, "--device", "meta")
        assert result["torch_settings"] == {}


def test_settings_that_cannot_be_are_refused_where_they_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tell_settings(folder, 1, {"float32_matmul_precision": "ultra"})
    assert main(["replay", "--trace", str(run), "--device", "cpu", "--quiet"]) == 1
    assert capsys.readouterr().err == (
        f"et_replay: error: {run} tells 'ultra' as PyTorch's setting float32_matmul_precision,"
        " expected one of highest, high, medium; remove it there to replay with that of this"
        " process.\n"
    )
    assert main(["info", "--trace", str(folder)]) == 0


def test_settings_that_are_lost_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder / "rank-1.run.jsonl"
    run.write_text(run.read_text() + '{"torch_settings": {"float32_matmul_pre')
    words = ("--trace", str(run), "--iterations", "1", "--warmup", "0", "--device", "cpu")
    assert main(["replay", *words]) == 0
    assert "no other tells the job's settings of PyTorch" in capsys.readouterr().err


def test_a_setting_that_this_torch_does_not_have_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tell_settings(folder, 1, {"backends.of_tomorrow": True})
    words = ("--trace", str(run), "--iterations", "1", "--warmup", "0", "--device", "cpu")
    assert main(["replay", *words]) == 0
    assert "which are not in force: 'backends.of_tomorrow'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "capacity"),
    [([], 150109880320), (["--device-memory", "1GiB"], 2**30)],
)
def test_a_replay_simulates_the_runs_own_gpu(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], capacity: int
) -> None:
    run = str(folder / "rank-0.run.jsonl")
    (of_trace,) = results(capsys, "replay", "--trace", run, "--device", "meta", "--quiet", *words)
    assert of_trace["device_memory_bytes"] == capacity
    (folder / "rank-0.et.json").unlink()
    (of_snapshot,) = results(capsys, "replay", "--trace", run, "--quiet", *words)
    assert of_snapshot["device_memory_bytes"] == capacity
    assert of_snapshot["torch_version"] == "2.11"


def test_the_iteration_of_the_report_given_back_is_the_one_that_repeats(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "--trace", str(folder / "rank-0.run.jsonl")]
    assert main(words) == 0
    assert "Iteration    ticks 10 to 14 repeat" in capsys.readouterr().out
    (by_marks,) = results(capsys, *words, "--quiet")
    (given,) = results(capsys, *words, "--iteration", "10:14", "--quiet")
    assert given["iteration_ticks"] == by_marks["iteration_ticks"] == [10, 14]
    # Iterations before the given one are not known as such: what varies in them gets a place.
    assert (by_marks["arena_bytes"], given["arena_bytes"]) == (7 * MIB, 10 * MIB)
    assert given["notes"][-1].startswith("Of the iterations only the given one is known")


def test_replay_takes_the_trace_of_one_process(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(folder / "rank-0.run.jsonl")
    (result,) = results(capsys, "replay", "--trace", run, "--device", "meta", "--quiet")
    assert result["trace"] == str(folder / "rank-0.et.json")


def test_replay_of_several_processes_names_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--trace", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "is a run of 2 processes, expected one: give one file of rank-0.et.json" in err


def test_a_run_that_wrote_nothing_cannot_be_planned_and_the_reason_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run", ends=[2_000_000])
    assert main(["plan", "--trace", str(tmp_path / "run")]) == 2
    assert (
        "neither a memory snapshot nor an execution trace: 1 iteration ended, and --skip 2 let all"
        " of them pass; --skip 0 records the last."
    ) in capsys.readouterr().err


def test_each_rank_is_compared_with_its_own_plan(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = tmp_path / "plans"
    assert main(["plan", "--trace", str(folder), "--output", str(plans), "--quiet"]) == 0
    capsys.readouterr()
    words = ["compare", "--trace", str(folder), "--plan", str(plans), "--allocator", "stalloc"]
    rows = results(capsys, *words, "--quiet")
    assert {row["rank"]: row["input"] for row in rows} == {
        0: str(folder / "rank-0.snapshot.pickle"),
        1: str(folder / "rank-1.et.json"),
    }
    (plans / "rank-1.plan.json").unlink()
    assert main(words) == 1
    assert "rank-1.plan.json" in capsys.readouterr().err


def test_a_timeline_of_several_processes_names_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["timeline", "--trace", str(folder)]) == 2
    assert "got 2: give one of rank-0.snapshot.pickle, rank-1.et.json." in capsys.readouterr().err


def test_marks_with_a_number_are_one_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path / "run", ends=[2_000_000, 3_000_000])
    text = path.read_text()
    for step in (0, 1):
        text = text.replace("optimizer step", f"mark ProfilerStep#{step}", 1)
    path.write_text(text)
    assert main(["info", "--trace", str(path)]) == 0
    assert "2 ended: 2 by mark ProfilerStep#*\n" in capsys.readouterr().out
