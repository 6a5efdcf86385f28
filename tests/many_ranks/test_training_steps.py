"""Data-parallel and sharded training steps of several ranks, replayed in all modes."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import pytest
from many_ranks.conftest import Capture, Launch, finished, start

from et_replay.commands import main
from et_replay.formats import open_trace
from et_replay.program import build_program, select_window

COLLECTIVES = {
    "ddp": {"all_reduce", "broadcast"},
    "fsdp": {"all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"},
}


def replayed(launch: Launch, ranks: int, *words: str) -> dict[str, Any]:
    """Replay with all ranks; return the one result, which rank 0 prints."""
    options = ("--device", "cpu", "--warmup", "1", "--iterations", "2", "--json", "-", "--quiet")
    done = launch(ranks, "-m", "et_replay", *words, *options)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert isinstance(result, dict)
    return result


def check(result: dict[str, Any], job: str, ranks: int, iterations: int = 2) -> None:
    """Assert that every rank executed all that it has, and every collective was made by all."""
    assert (result["world_size"], [rank["rank"] for rank in result["ranks"]]) == (
        ranks,
        list(range(ranks)),
    )
    for rank in result["ranks"]:
        operations = rank["operations"]
        assert operations["executed"] == operations["total"] > 0
        assert len(rank["iteration_time_ns"]) == iterations
    assert {row["kind"] for row in result["collectives"]} == COLLECTIVES[job]
    for row in result["collectives"]:
        assert row["group"] == row["ranks"] == list(range(ranks))
        assert row["shortest_time_ns"] <= row["median_time_ns"] <= row["longest_time_ns"]
        assert row["bus_bandwidth_bytes_per_s"] > 0


@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_each_rank_of_a_capture_has_the_same_calls_in_every_step(
    captured: Capture, job: str
) -> None:
    """Work of gloo, which ends on other threads, has not shifted which call is whose."""
    found = set()
    for rank in range(2):
        trace = open_trace(captured(job, 2) / f"rank-{rank}.et.json")
        for step in (2, 3):
            program = build_program(trace, select_window(trace, str(step)))
            found.add(tuple(operation.node.name for operation in program.operations))
    assert len(found) == 1


@pytest.mark.parametrize("mode", ["pre", "lazy", "stalloc"])
@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_two_ranks_replay_in_every_allocation_mode(
    captured: Capture, launch: Launch, job: str, mode: str
) -> None:
    words = ("--trace", str(captured(job, 2)), "--tensor-allocation-mode", mode)
    result = replayed(launch, 2, *words, "--replay-mode", "full")
    check(result, job, 2)


@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_collectives_alone_are_the_same_ones(captured: Capture, launch: Launch, job: str) -> None:
    folder = str(captured(job, 2))
    result = replayed(launch, 2, "--trace", folder, "--replay-mode", "comm")
    check(result, job, 2)
    operations = result["ranks"][0]["operations"]["total"]
    assert operations < 40


@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_computation_alone_makes_no_collective(captured: Capture, launch: Launch, job: str) -> None:
    folder = str(captured(job, 2))
    result = replayed(launch, 2, "--trace", folder, "--replay-mode", "comp")
    assert result["collectives"] == []
    assert all(rank["operations"]["substituted"] > 0 for rank in result["ranks"])


@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_four_ranks_replay_their_traces(captured: Capture, launch: Launch, job: str) -> None:
    """In the mode that torchrun's processes have by default: full."""
    check(replayed(launch, 4, "--trace", str(captured(job, 4))), job, 4)


def test_two_hosts_replay_together(captured: Capture, environment: dict[str, str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    trace = str(captured("ddp", 2))
    words = ("-m", "et_replay", "--trace", trace, "--device", "cpu", "--json", "-", "--quiet")
    hosts = []
    for host in range(2):
        place = ("--nnodes=2", f"--node-rank={host}", "--nproc-per-node=1")
        rendezvous = ("--master-addr=127.0.0.1", f"--master-port={port}")
        launcher = ("-m", "torch.distributed.run", *place, *rendezvous)
        hosts.append(start([sys.executable, *launcher, *words], environment))
    first, second = (finished(host, 120) for host in hosts)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert second.stdout == ""
    (result,) = json.loads(first.stdout)["results"]
    check(result, "ddp", 2, iterations=3)


def test_the_memory_of_a_rank_is_that_of_its_replay_alone(
    captured: Capture, launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = captured("fsdp", 2)
    together = replayed(launch, 2, "--trace", str(folder))
    words = ("--device", "cpu", "--warmup", "0", "--iterations", "1", "--json", "-", "--quiet")
    assert main(["--trace", str(folder / "rank-1.et.json"), *words]) == 0
    (alone,) = json.loads(capsys.readouterr().out)["results"]
    assert together["ranks"][1]["peak_allocated_bytes"] == alone["peak_allocated_bytes"]
