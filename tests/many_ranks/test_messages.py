"""Messages from any rank, in a job of which some ranks call nothing; recordings of collectives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from many_ranks.conftest import Capture, Launch, finished, start

JOB = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, model = dist.get_rank(), torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    if rank == 0:
        dist.recv(torch.empty(5))
    if rank == 1:
        dist.send(torch.randn(5), 0)
    optimizer.step()
dist.barrier()
"""


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """Capture a job of three ranks, of which the last one only computes."""
    folder = tmp_path_factory.mktemp("messages")
    script = folder / "job.py"
    script.write_text(JOB)
    recorder = [sys.executable, "-m", "et_replay", "capture", "--iterations", "2", "--output"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", str(script)]
    command = [*recorder, str(folder / "captured"), "--", sys.executable, *launcher]
    done = finished(start(command, environment), 120)
    assert done.returncode == 0, done.stderr
    return folder / "captured"


def test_ranks_that_call_nothing_take_part(of_three: Path, launch: Launch) -> None:
    words = ("--trace", str(of_three), "--device", "cpu", "--json", "-", "--quiet")
    done = launch(3, "-m", "et_replay", *words, "--collective-timeout", "20")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert {(row["kind"], row["bytes"]) for row in result["collectives"]} == {
        ("send", 20),
        ("recv", 20),
    }
    operations = [rank["operations"] for rank in result["ranks"]]
    assert all(each["executed"] == each["total"] > 0 for each in operations)


def test_a_message_from_any_rank_needs_all_ranks(of_three: Path, launch: Launch) -> None:
    words = ("--trace", str(of_three), "--device", "cpu", "--allow-other-world-size")
    done = launch(2, "-m", "et_replay", *words)
    assert done.returncode != 0
    assert "Rank 0 receives at node " in done.stderr
    assert "from any rank of group (0..2), and the trace does not tell from which" in done.stderr


def test_an_execution_trace_of_a_replay_has_its_collectives(
    tmp_path: Path, captured: Capture, launch: Launch
) -> None:
    words = ("--trace", str(captured("fsdp", 2)), "--device", "cpu", "--quiet")
    done = launch(
        2, "-m", "et_replay", *words, "--execution-trace", f"{tmp_path}/rank-{{rank}}.json"
    )
    assert done.returncode == 0, done.stderr
    again = ("--trace", str(tmp_path), "--device", "cpu", "--json", "-", "--quiet")
    done = launch(2, "-m", "et_replay", *again)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    counts: dict[str, int] = {}
    for row in result["collectives"]:
        counts[row["kind"]] = counts.get(row["kind"], 0) + row["calls"]
    assert counts == {"all_gather_into_tensor": 5, "reduce_scatter_tensor": 3, "all_reduce": 1}
