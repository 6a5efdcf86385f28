"""Our allocators under torch on a GPU, held against PyTorch's own; each program in its process."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).with_name("pluggable_programs.py")
SERVED = {
    "native": {},
    "expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}
"""Our allocators, with what makes torch's own the same."""

pytestmark = pytest.mark.cuda


@functools.cache
def run(allocator: str, program: str, conf: str = "") -> dict[str, Any]:
    paths = [str(PROGRAMS.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if conf:
        environment |= {"PYTORCH_ALLOC_CONF": conf, "PYTORCH_CUDA_ALLOC_CONF": conf}
    outcome = subprocess.run(
        [sys.executable, str(PROGRAMS), allocator, program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    result: dict[str, Any] = json.loads(outcome.stdout.splitlines()[-1])
    note(allocator, program, result)
    return result


def note(allocator: str, program: str, result: dict[str, Any]) -> None:
    """Add the result to the file that ET_REPLAY_FIGURES names, if it is set."""
    if path := os.environ.get("ET_REPLAY_FIGURES"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"allocator": allocator, "program": program, **result}) + "\n")


def run_torch(like: str, program: str) -> dict[str, Any]:
    return run("torch", program, SERVED[like].get("PYTORCH_ALLOC_CONF", ""))


def without_counts_of_holes(memory: dict[str, int]) -> dict[str, int]:
    """Leave out how many holes there are: up to 2.11 the driver's addresses choose among equals."""
    return {name: value for name, value in memory.items() if not name.startswith("inactive_split.")}


@pytest.mark.parametrize("allocator", SERVED)
@pytest.mark.parametrize("program", ["train", "empty"])
def test_memory_is_that_of_torch_to_the_byte(allocator: str, program: str) -> None:
    ours, torchs = run(allocator, program), run_torch(allocator, program)
    assert without_counts_of_holes(ours["memory"]) == without_counts_of_holes(torchs["memory"])


@pytest.mark.parametrize("allocator", SERVED)
def test_training_gives_the_losses_that_it_gives_with_torch(allocator: str) -> None:
    ours, torchs = run(allocator, "train"), run_torch(allocator, "train")
    assert ours["losses"] == torchs["losses"]
    assert ours["max_memory_allocated"] == torchs["max_memory_allocated"]
    assert ours["max_memory_reserved"] == torchs["max_memory_reserved"]
    assert ours["backend"] == "pluggable"


@pytest.mark.parametrize("allocator", SERVED)
def test_what_is_kept_is_intact_when_the_cache_is_emptied(allocator: str) -> None:
    ours = run(allocator, "empty")
    assert ours["intact"]
    assert ours["reserved"] == run_torch(allocator, "empty")["reserved"]


@pytest.mark.parametrize("allocator", SERVED)
def test_out_of_memory_is_torchs_error_and_names_the_limit(allocator: str) -> None:
    ours = run(allocator, "out_of_memory")
    assert ours["kind"] == "torch.OutOfMemoryError"
    assert ours["text"].startswith(
        "CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0 is limited to 1024.00 MiB"
    )
    assert ours["last"] == 1
    torchs = dict(run_torch(allocator, "out_of_memory")["memory"])
    if allocator == "expandable":
        torchs["num_alloc_retries"] -= 1  # its limit is a fraction, which mapping checks once more
    assert ours["memory"] == torchs


@pytest.mark.parametrize("allocator", SERVED)
def test_a_side_stream_reads_what_it_was_given(allocator: str) -> None:
    assert run(allocator, "streams") == {"wrong": 0, "waiting_bytes": 0}


@pytest.mark.parametrize("allocator", SERVED)
def test_graphs_are_captured_and_replayed_between_other_work(allocator: str) -> None:
    ours = run(allocator, "graph")
    assert ours["wrong"] == 0
    assert ours["reserved_after"] < ours["reserved"]


@pytest.mark.parametrize("allocator", SERVED)
def test_threads_do_not_share_memory(allocator: str) -> None:
    assert run(allocator, "threads")["wrong"] == []


@pytest.mark.parametrize("allocator", SERVED)
def test_a_thousand_iterations_take_no_more_than_a_hundred(allocator: str) -> None:
    history = run(allocator, "many")["history"]
    assert all(state == history[0] for state in history)


@pytest.mark.parametrize("allocator", SERVED)
def test_the_process_ends_well_with_live_tensors(allocator: str) -> None:
    assert run(allocator, "exit_with_live") == {"summary": True}


def test_compiled_code_is_served() -> None:
    assert run("native", "compiled")["finite"] == [True] * 3


def test_it_is_too_late_after_the_first_use_of_cuda() -> None:
    assert "before the first use of CUDA" in run("torch", "late")["error"]


def test_a_plan_is_served() -> None:
    ours = run("stalloc", "planned")
    assert (ours["planned"], ours["displaced"]) == (64 * 300, 0)
    assert ours["places"] == [1] * 64


def test_streams_that_share_memory_wait_for_each_other() -> None:
    assert run("stalloc", "shared_by_streams") == {"shared": 20, "wrong": 0}


def test_a_script_is_followed_through_its_list_and_trains_the_same() -> None:
    ours, torchs = run("stalloc", "followed"), run("torch", "unfollowed")
    assert ours["losses"] == torchs["losses"]
    expected, _, _ = ours["iterations"][0]
    planned = [planned for _, planned, _ in ours["iterations"]]
    gradients = 8  # of one iteration are there until the next has begun, in its places
    for iteration in (2, 3, 5, 6):
        assert planned[iteration] >= expected - gradients
    assert all(peak > 0 for *_, peak in ours["iterations"])
