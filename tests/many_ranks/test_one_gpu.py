"""One rank on one GPU: NCCL's calls as they are recorded, and made again by a world of one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from many_ranks.conftest import TRAIN, Launch, finished, start

pytestmark = pytest.mark.cuda

EVERY_COLLECTIVE = TRAIN.with_name("collectives.py")
STEPS = ("--device", "cuda", "--iterations", "5")


def replayed(launch: Launch, trace: Path, *words: str) -> dict[str, Any]:
    options = ("--warmup", "1", "--iterations", "2", "--device", "cuda", "--json", "-", "--quiet")
    done = launch(1, "-m", "et_replay", "--trace", str(trace), *options, *words)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("mode", ["comm", "full"])
def test_every_collective_of_nccl_is_made_again(tmp_path: Path, launch: Launch, mode: str) -> None:
    done = launch(1, str(EVERY_COLLECTIVE), "--backend", "nccl", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = replayed(launch, tmp_path, "--replay-mode", mode)
    (rank,) = result["ranks"]
    assert not [reason for reason in rank["reasons"] if "c10d" in reason["name"]]
    assert rank["operations"]["skipped"] == 0
    kinds = {row["kind"] for row in result["collectives"]}
    assert kinds >= {
        *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor"),
        *("reduce_scatter", "reduce_scatter_tensor", "all_to_all_single", "barrier"),
    }


@pytest.mark.parametrize("allocation", ["pre", "lazy", "stalloc"])
@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_a_step_replays_over_nccl_in_every_allocation_mode(
    tmp_path: Path, launch: Launch, environment: dict[str, str], job: str, allocation: str
) -> None:
    folder = tmp_path / "captured"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    recorder = [sys.executable, "-m", "et_replay", "capture", "--iterations", "2"]
    command = [*recorder, "--output", str(folder), "--", *launcher, str(TRAIN), job, *STEPS]
    done = finished(start(command, environment), 180)
    assert done.returncode == 0, done.stderr
    words = ("--replay-mode", "full", "--tensor-allocation-mode", allocation)
    (rank,) = replayed(launch, folder, *words)["ranks"]
    operations = rank["operations"]
    assert operations["executed"] == operations["total"] > 0
    assert rank["simulated"] is False
    assert rank["peak_allocated_bytes"] > 0
