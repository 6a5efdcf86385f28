"""`et_replay fit`: tables, JSON, the worst of several inputs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from snapshot_builder import block, entry, freed, segment, snapshot

from et_replay.commands import main
from et_replay.explain.way_out import ALLOCATORS

MIB = 2**20
A, B = 64 * MIB, 128 * MIB
TRACES = Path(__file__).resolve().parents[2] / "traces"
CONVNET, MOE = (str(TRACES / f"{name}_cuda.json.gz") for name in ("convnet", "moe"))


def job(path: Path, first: int, second: int) -> str:
    """Write the snapshot of a job: `first` MiB, freed, then `second` MiB in a segment of its own.

    Native needs both, or the larger one if the cache is given back in between.
    """
    trace = [
        entry("segment_alloc", A, first * MIB),
        entry("alloc", A, first * MIB),
        *freed(A, first * MIB),
        entry("segment_alloc", B, second * MIB),
        entry("alloc", B, second * MIB),
    ]
    segments = [segment(A, block(first * MIB, "inactive")), segment(B, block(second * MIB))]
    path.write_text(json.dumps(snapshot(segments, trace)))
    return str(path)


def fitted(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    file = tmp_path / "rows.json"
    assert main(["fit", *words, "--json", str(file), "--force"]) == 0
    document = json.loads(file.read_text())
    assert document["command"] == "fit"
    return list(document["results"])


def test_a_row_has_the_documented_keys_and_figures(tmp_path: Path) -> None:
    path = job(tmp_path / "job.json", 30, 40)
    (row,) = fitted(tmp_path, "--trace", path, "--allocator", "native")
    assert {"input", "allocator", "device_memory_bytes"} <= row.keys()
    assert (row["input"], row["allocator"]) == (path, "native")
    assert row["device_memory_bytes"] == 70 * MIB
    assert row["least_device_memory_bytes"] == 40 * MIB
    assert row["retries"] == 1
    assert row["peak_allocated_bytes"] == 40 * MIB
    assert (row["monotone"], row["undefined"], row["other_memory_bytes"]) == (True, None, 0)


def test_all_allocators_are_fitted_the_frugal_ones_first(tmp_path: Path) -> None:
    rows = fitted(tmp_path, "--trace", job(tmp_path / "job.json", 30, 40))
    assert {row["allocator"] for row in rows} == set(ALLOCATORS)
    needs = [row["device_memory_bytes"] for row in rows]
    assert needs == sorted(needs)
    assert {row["allocator"]: row["device_memory_bytes"] for row in rows}["ideal"] == 40 * MIB


def test_memory_of_others_is_added_to_every_size(tmp_path: Path) -> None:
    path = job(tmp_path / "job.json", 30, 40)
    words = ["--trace", path, "--allocator", "native", "--other-memory", "500MiB"]
    (row,) = fitted(tmp_path, *words)
    assert row["other_memory_bytes"] == 500 * MIB
    assert row["device_memory_bytes"] == 570 * MIB
    assert row["least_device_memory_bytes"] == 540 * MIB
    assert row["peak_allocated_bytes"] == 40 * MIB


def test_the_table_says_what_is_assumed_of_other_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job(tmp_path / "job.json", 30, 40)
    assert main(["fit", "--trace", path, "--allocator", "native"]) == 0
    out = capsys.readouterr().out
    assert "all of the device is PyTorch's" in out
    assert "--other-memory" in out
    assert "70.0 MiB" in out
    assert "40.0 MiB" in out
    assert "Largest of all inputs" not in out


def test_of_several_inputs_the_worst_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [job(Path(f"rank-{k}.json"), 30, size) for k, size in enumerate((34, 50, 40))]
    words = [word for path in paths for word in ("--trace", path)]
    assert main(["fit", *words, "--allocator", "native", "--jobs", "1"]) == 0
    _, _, worst = capsys.readouterr().out.partition("Largest of all inputs")
    (line,) = (line for line in worst.splitlines() if "native" in line)
    assert line.split() == ["native", "80.0", "MiB", "rank-1.json"]


def test_a_folder_stands_for_all_ranks_in_it_the_worst_first(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    paths = [job(folder / f"rank-{k}.json", 30, 34 + 2 * k) for k in range(3)]
    words = ["--trace", str(folder), "--allocator", "ideal", "--jobs", "2"]
    rows = fitted(tmp_path, *words)
    assert [row["input"] for row in rows] == paths[::-1]
    assert [row["rank"] for row in rows] == [2, 1, 0]
    assert [row["device_memory_bytes"] for row in rows] == [38 * MIB, 36 * MIB, 34 * MIB]


def test_the_request_of_a_recorded_oom_is_served(tmp_path: Path) -> None:
    file = tmp_path / "oom.json"
    trace = [
        entry("segment_alloc", A, 60 * MIB),
        entry("alloc", A, 60 * MIB),
        entry("oom", 40 * MIB, 50 * MIB),
    ]
    file.write_text(json.dumps(snapshot([segment(A, block(60 * MIB))], trace)))
    (row,) = fitted(tmp_path, "--trace", str(file), "--allocator", "native")
    assert row["device_memory_bytes"] == 110 * MIB


def test_a_snapshot_from_the_middle_of_a_job_is_fitted(tmp_path: Path) -> None:
    """10 of 40 reserved MiB lived before the first event."""
    file = tmp_path / "middle.json"
    trace = [entry("alloc", A + 10 * MIB, 20 * MIB), *freed(A + 10 * MIB, 20 * MIB)]
    state = [segment(A, block(10 * MIB), block(30 * MIB, "inactive"))]
    file.write_text(json.dumps(snapshot(state, trace)))
    (row,) = fitted(tmp_path, "--trace", str(file), "--allocator", "native")
    assert row["device_memory_bytes"] == 40 * MIB


def test_an_execution_trace_is_the_job_as_it_was_unless_a_mode_is_named(tmp_path: Path) -> None:
    """The truth beside the sample: 409,079,808 B were allocated at the peak of convnet's steps."""
    (row,) = fitted(tmp_path, "--trace", CONVNET, "--allocator", "native")
    assert row["tensor_allocation_mode"] == "job"
    assert row["peak_allocated_bytes"] == pytest.approx(409079808, rel=0.02)
    assert sum(each["bytes"] for each in row["live_at_peak"]) == pytest.approx(409079808, rel=0.02)
    words = ["--trace", CONVNET, "--allocator", "native", "--tensor-allocation-mode"]
    (pre,) = fitted(tmp_path, *words, "pre")
    assert pre["tensor_allocation_mode"] == "pre"
    assert pre["device_memory_bytes"] < row["device_memory_bytes"]


def test_a_dash_writes_json_and_nothing_else_to_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job(tmp_path / "job.json", 30, 40)
    assert main(["fit", "--trace", path, "--allocator", "ideal", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["results"][0]["device_memory_bytes"] == 40 * MIB
    assert err == ""


def test_an_existing_file_is_overwritten_only_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job(tmp_path / "job.json", 30, 40)
    file = tmp_path / "rows.json"
    file.write_text("precious")
    words = ["fit", "--trace", path, "--allocator", "ideal", "--json", str(file)]
    assert main(words) == 2
    assert file.read_text() == "precious"
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"et_replay: error: {file} exists; --force overwrites it.\n")
    assert main([*words, "--force"]) == 0
    assert json.loads(file.read_text())["command"] == "fit"


def test_the_input_is_never_overwritten(tmp_path: Path) -> None:
    path = job(tmp_path / "job.json", 30, 40)
    before = Path(path).read_bytes()
    assert main(["fit", "--trace", path, "--json", path, "--force"]) == 2
    assert Path(path).read_bytes() == before


def test_a_file_that_holds_nothing_ends_with_1_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps(snapshot([], [])))
    assert main(["fit", "--trace", str(empty), "--json", str(tmp_path / "rows.json")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("et_replay: error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["empty.json"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--allocator", "jemalloc"], "jemalloc"),
        (["--allocator", "native:max_splt_size_mb:3"], "max_splt_size_mb"),
        (["--torch-version", "1.13"], "1.13"),
        (["--tensor-allocation-mode", "eager"], "invalid choice: 'eager'"),
        (["--other-memory", "some"], "Expected a size such as 24GiB"),
        (["--trace", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_usage_is_one_sentence_and_no_table(
    tmp_path: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["fit", "--trace", job(tmp_path / "job.json", 30, 40), *words, "--jobs", "1"])
    assert code == (1 if "/nowhere" in words else 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert complaint in err
