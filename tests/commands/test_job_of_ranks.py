"""`compare`, `fit` and `plan` of all ranks of a job: one table, the worst rank first."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from captured_folders import write_run
from snapshot_builder import block, entry, freed, pickled, segment, snapshot
from trace_builder import T, operator, write_trace

from et_replay.commands import main

MIB = 2**20
A, B = 64 * MIB, 256 * MIB
SIZES = {0: 30, 1: 50, 2: 40}
"""MiB that each rank holds at once, beside a segment of 20 MiB that it gave back."""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return the captured run of three ranks."""
    folder = tmp_path / "job"
    for rank, size in SIZES.items():
        trace = [
            entry("segment_alloc", A, 20 * MIB),
            entry("alloc", A, 20 * MIB),
            *freed(A, 20 * MIB),
            entry("segment_alloc", B, size * MIB),
            entry("alloc", B, size * MIB),
        ]
        segments = [segment(A, block(20 * MIB, "inactive")), segment(B, block(size * MIB))]
        file = tmp_path / "snapshot.pickle"
        file.write_bytes(pickled(snapshot(segments, trace)))
        write_run(folder, ends=(), rank=rank, world_size=3, snapshot=file)
    return folder


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    """Return the cells of each line that a command prints."""
    assert main([*words, "--quiet"]) == 0
    return [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]


def objects(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main([*words, "--json", "-", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert isinstance(found, list)
    return found


def test_compare_has_one_table_with_the_worst_rank_first(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", "--trace", str(job), "--allocator", "native", "--allocator", "direct")
    found = lines(capsys, *words)
    assert found[:5] == [
        ["Peak reserved by rank, the worst first"],
        ["rank", "native", "direct", "input"],
        ["1", "70.0 MiB", "50.0 MiB", "rank-1.snapshot.pickle"],
        ["2", "60.0 MiB", "40.0 MiB", "rank-2.snapshot.pickle"],
        ["0", "50.0 MiB", "30.0 MiB", "rank-0.snapshot.pickle"],
    ]
    assert found[6] == ["Rank 1"]
    assert [line[0] for line in found].count("Input") == 1
    rows = objects(capsys, *words)
    assert [row["rank"] for row in rows] == [1, 1, 2, 2, 0, 0]


def test_a_rank_that_runs_out_of_memory_is_worse_than_one_that_does_not(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--trace", str(job), "--device-memory", "45MiB", "--allocator", "native"]
    assert main([*words, "--json", "-", "--quiet"]) == 3
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [(row["rank"], row["out_of_memory"] is not None) for row in rows] == [
        (1, True),
        (2, False),
        (0, False),
    ]


def test_fit_has_one_table_with_the_worst_rank_first(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("fit", "--trace", str(job), "--allocator", "native", "--allocator", "expandable")
    found = lines(capsys, *words)
    assert found[1:5] == [
        ["rank", "native", "least", "of", "input"],
        ["1", "70.0 MiB", "60.0 MiB", "expandable", "rank-1.snapshot.pickle"],
        ["2", "60.0 MiB", "40.0 MiB", "expandable", "rank-2.snapshot.pickle"],
        ["0", "50.0 MiB", "40.0 MiB", "expandable", "rank-0.snapshot.pickle"],
    ]
    assert found[-2] == ["native", "70.0 MiB", "rank-1.snapshot.pickle"]
    assert [row["rank"] for row in objects(capsys, *words)] == [1, 1, 2, 2, 0, 0]


def test_plan_makes_one_for_each_rank_and_has_the_largest_first(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    found = lines(capsys, "plan", "--trace", str(job), "--output", str(plans))
    assert found[1] == [
        *("rank", "arena", "of the lower bound", "storages", "time", "input", "written"),
    ]
    assert [(line[0], line[1], line[-1]) for line in found[2:5]] == [
        ("1", "50.0 MiB", "rank-1.plan.json"),
        ("2", "40.0 MiB", "rank-2.plan.json"),
        ("0", "30.0 MiB", "rank-0.plan.json"),
    ]
    rows = objects(capsys, "plan", "--trace", str(job))
    assert [(row["rank"], row["arena_bytes"]) for row in rows] == [
        (1, 50 * MIB),
        (2, 40 * MIB),
        (0, 30 * MIB),
    ]


@pytest.mark.parametrize("command", ["compare", "fit", "plan"])
def test_a_captured_run_that_lacks_a_rank_is_refused(
    job: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for file in job.glob("rank-1.*"):
        file.unlink()

    assert main([command, "--trace", str(job), "--quiet"]) == 1
    assert capsys.readouterr() == (
        "",
        f"et_replay: error: {job} has ranks 0 and 2 of 3: rank 1 is missing, but all are needed;"
        " --trace FILE takes one rank alone.\n",
    )


def test_a_rank_that_recorded_nothing_is_missing_too(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job / "rank-2.snapshot.pickle").unlink()

    assert main(["fit", "--trace", str(job), "--quiet"]) == 1
    assert "has ranks 0 and 1 of 3: rank 2 is missing" in capsys.readouterr().err


def test_one_process_of_a_captured_run_that_lacks_a_rank_is_taken_by_its_name(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job / "rank-1.snapshot.pickle").unlink()
    words = ("fit", "--trace", str(job / "rank-2.run.jsonl"), "--allocator", "native")
    assert [(row["rank"], row["input"]) for row in objects(capsys, *words)] == [
        (2, str(job / "rank-2.snapshot.pickle"))
    ]


def test_files_that_are_no_job_keep_their_order_and_a_table_each(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(job / f"rank-{rank}.snapshot.pickle") for rank in SIZES]
    words = [word for file in files for word in ("--trace", file)]
    rows = objects(capsys, "compare", *words, "--allocator", "native")
    assert [(row["rank"], row["input"]) for row in rows] == [(None, file) for file in files]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Return a job of two plain rank files: rank 0 holds 2 KiB at once, and rank 1 holds 6 KiB."""
    folder = tmp_path / "plain"
    folder.mkdir()
    for rank, count in ((0, 256), (1, 768)):
        x, y = T(5, 5, 0, count, 4), T(6, 6, 0, count, 4)
        schema = "aten::relu(Tensor self) -> Tensor"
        relu = operator(10, "aten::relu", 2, [x], [y], schema=schema)
        write_trace(folder / f"rank-{rank}.json", relu)
    return folder


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (("rank-0.json", "rank-1.json"), ["rank-0.plan.json", "rank-1.plan.json"]),
        (("et_0.json", "et_1.json"), ["et_0.plan.json", "et_1.plan.json"]),
        (("job.0.et", "job.1.et"), ["job.0.plan.json", "job.1.plan.json"]),
    ],
)
def test_a_folder_of_plans_serves_the_plain_files_that_it_was_made_from(
    plain: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    names: tuple[str, str],
    written: list[str],
) -> None:
    for rank, name in enumerate(names):
        (plain / f"rank-{rank}.json").rename(plain / name)
    plans = tmp_path / "plans"
    objects(capsys, "plan", "--trace", str(plain), "--output", str(plans))
    assert sorted(file.name for file in plans.iterdir()) == written

    words = ("compare", "--trace", str(plain), "--plan", str(plans), "--allocator", "stalloc")
    rows = objects(capsys, *words)
    found = {Path(row["input"]).name: row["plan"]["arena_bytes"] for row in rows}
    assert found == {names[0]: 2048, names[1]: 6144}


def test_one_plain_file_takes_its_own_plan_of_a_folder(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans, file = tmp_path / "plans", plain / "rank-1.json"
    objects(capsys, "plan", "--trace", str(plain), "--output", str(plans))
    words = ("--trace", str(file), "--plan", str(plans))

    (row,) = objects(capsys, "compare", *words, "--allocator", "stalloc")
    assert row["plan"]["arena_bytes"] == 6144
    replay = ("replay", *words, "--tensor-allocation-mode", "stalloc", "--device", "meta")
    (result,) = objects(capsys, *replay)
    assert result["plan"]["arena_bytes"] == 6144


def test_a_plan_that_a_folder_lacks_is_named(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = tmp_path / "plans"
    objects(capsys, "plan", "--trace", str(plain), "--output", str(plans))
    (plans / "rank-1.plan.json").unlink()
    words = ["compare", "--trace", str(plain), "--plan", str(plans), "--allocator", "stalloc"]

    assert main([*words, "--quiet"]) == 1
    assert capsys.readouterr().err == (
        f"et_replay: error: The folder {plans} holds no rank-1.plan.json, which et_replay plan"
        f" writes for {plain / 'rank-1.json'}; it holds rank-0.plan.json.\n"
    )
    (plans / "rank-0.plan.json").unlink()
    assert main([*words, "--quiet"]) == 2
    assert f"The folder {plans} holds no plan, such as" in capsys.readouterr().err


def test_of_a_folder_of_plans_one_is_checked_at_a_time(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = tmp_path / "plans"
    objects(capsys, "plan", "--trace", str(plain), "--output", str(plans))

    for words in ([], ["--trace", str(plain)]):
        assert main(["plan", "--check", str(plans), *words, "--quiet"]) == 2
        assert capsys.readouterr().err == (
            f"et_replay: error: --check {plans} is a folder, expected one plan file: give one of"
            " rank-0.plan.json, rank-1.plan.json, and with --trace the file that it was made for.\n"
        )
