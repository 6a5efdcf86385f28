"""On a real GPU: replays that our own allocators serve, by plan or not, each in its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cuda

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("served_programs.py")
BUNDLED = ["convnet_cuda", "moe_cuda", "transformer_cuda"]
MIB = 2**20


def python(*words: str, allowed: tuple[int, ...] = (0,)) -> str:
    outcome = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        timeout=500,
    )
    assert outcome.returncode in allowed, outcome.stderr
    return outcome.stdout


def served(name: str, trace: str, mode: str, allocator: str = "-") -> dict[str, Any]:
    path = str(ROOT / "traces" / f"{trace}.json.gz")
    output = python(str(PROGRAMS), name, path, mode, allocator)
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


@pytest.mark.parametrize("trace", BUNDLED)
def test_planned_results_are_those_of_tensors_that_are_there_before(trace: str) -> None:
    pre, planned = served("sums", trace, "pre"), served("sums", trace, "stalloc")

    assert len(pre["sums"]) == len(planned["sums"]) > 200
    # Sums by atomics differ in their last bits from run to run.
    assert planned["sums"] == pytest.approx(pre["sums"], rel=1e-3, abs=1e-6)
    assert planned["fallback"] == 0


@pytest.mark.parametrize("trace", BUNDLED)
def test_a_plan_reserves_hardly_more_than_is_allocated_and_leaves_no_request(trace: str) -> None:
    planned, lazy = served("figures", trace, "stalloc"), served("figures", trace, "lazy")

    assert planned["reserved"] <= 1.01 * planned["allocated"] + 2 * MIB
    assert planned["allocated"] <= lazy["allocated"]
    assert planned["fallback"] == 0
    assert planned["executed"] == planned["total"]


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
@pytest.mark.parametrize("trace", BUNDLED)
def test_our_allocators_reserve_what_torchs_own_does(trace: str, settings: str) -> None:
    own = served("figures", trace, "pre", f"torch:{settings}" if settings else "torch")
    ours = served("figures", trace, "pre", "expandable" if settings else "native")

    assert (ours["allocated"], ours["reserved"]) == (own["allocated"], own["reserved"])


@pytest.mark.parametrize("mode", ["pre", "lazy", "stalloc"])
def test_a_thousand_iterations_leave_nothing_behind(mode: str) -> None:
    result = served("many", "convnet_cuda", mode)

    allocated = {allocated for allocated, _ in result["seen"]}
    resident = [peak for _, peak in result["seen"]]
    assert len(result["seen"]) == 10
    assert len(allocated) == 1
    assert resident[-1] - resident[1] < 8 * 1024  # KiB
    assert result["fallback"] in (None, 0)
    assert result["planned"] is None or result["planned"] % 1000 == 0


def test_the_simulation_reserves_to_the_byte_what_is_measured(tmp_path: Path) -> None:
    trace = str(ROOT / "traces" / "transformer_cuda.json.gz")
    output = python("-m", "et_replay", "compare", "--trace", trace, "--device", "cuda",
                    "--iterations", "3", "--json", "-")  # fmt: skip
    rows = json.loads(output)["results"]

    assert [row["allocator"] for row in rows] == [
        "torch", "torch:expandable_segments:True", "native", "expandable", "stalloc",
    ]  # fmt: skip
    for row in rows[:4]:
        assert row["peak_reserved_bytes"] == row["measured"]["peak_reserved_bytes"], row
    assert all(len(row["measured"]["iteration_time_ns"]) == 3 for row in rows)
    kept = [entry for entry in rows[0]["beyond_the_trace"] if entry["kept"]]
    assert max(entry["largest_bytes"] for entry in kept) == 32 * MIB


@pytest.mark.parametrize("allocator", ["torch", "native", "expandable"])
def test_a_replay_out_of_memory_is_explained_by_what_was_allocated(allocator: str) -> None:
    trace = str(ROOT / "traces" / "transformer_cuda.json.gz")
    words = ("-m", "et_replay", "--trace", trace, "--device", "cuda", "--allocator", allocator)
    result = json.loads(python(*words, "--device-memory", "500MiB", "--json", "-", allowed=(3,)))[
        "results"
    ][0]

    failure, explanation = result["out_of_memory"], result["explanation"]
    assert failure["operator"] and failure["requested_bytes"] > 0
    assert failure["reserved_bytes"] <= 500 * MIB
    classes = {entry["class"]: entry["bytes"] for entry in explanation["classes"]}
    assert 0.98 < sum(classes.values()) / failure["allocated_bytes"] <= 1  # blocks are rounded
    assert classes["weights"] > 60 * MIB
    assert result["way_out"]
