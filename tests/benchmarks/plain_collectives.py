"""Sizes of collectives in, the time that torch.distributed alone takes for each out.

    torchrun --standalone --nproc-per-node 2 tests/benchmarks/plain_collectives.py ROWS.json

ROWS.json lists objects with `kind`, `dtype` and `bytes`, as in a replay's `--json`; rank 0 prints
the list of times in ns, of a call without waiting for another rank: on GPUs what NCCL says of it.
A turn has a call of each row, one after another with nothing between them, and begins on all ranks
at once; each row has a buffer of its own, as in a job, and gathers are in place, as those of FSDP.
It is null for a kind that this does not know.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from et_replay.replay.dtypes import torch_dtype

WARMUP, TURNS = 5, 100
HELD = 4_000_000
"""Cycles for which a GPU is kept busy, by row: the host launches the calls of a turn meanwhile."""
Call = Callable[[], dist.Work]


def main() -> None:
    """Take the times of all rows."""
    os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rows = json.loads(Path(sys.argv[1]).read_text())
    calls = [call_of(row, device) for row in rows]
    known = [call for call in calls if call is not None]
    turns = [timed(known, device) for _ in range(WARMUP + TURNS)][WARMUP:]
    of_calls = iter(zip(*turns, strict=True))
    times = [
        None if call is None else time_of(row["kind"], next(of_calls))
        for row, call in zip(rows, calls, strict=True)
    ]
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.barrier()
    dist.destroy_process_group()


def time_of(kind: str, turns: tuple[list[float], ...]) -> float:
    """Return the time of a call without waiting.

    Where each waits for all that is the time of the rank that came last; the one that sends a
    broadcast does not wait, and may be done before it has arrived.
    """
    without_waiting = max if kind == "broadcast" else min
    return statistics.median(map(without_waiting, turns))


def timed(calls: list[Call], device: torch.device) -> list[list[float]]:
    """Make all calls, one after another; return by call the ns that it took, on each rank."""
    dist.barrier()
    timer = on_gpu if device.type == "cuda" else on_host
    mine = torch.tensor(timer(calls), device=device, dtype=torch.float64)
    of_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, mine)
    times: list[list[float]] = torch.stack(of_ranks, dim=-1).tolist()
    return times


def on_gpu(calls: list[Call]) -> list[float]:
    """Launch all while the GPU is held, behind what lets the GPUs begin together."""
    torch.cuda._sleep(HELD * len(calls))
    dist.all_reduce(torch.zeros(1, device="cuda"))
    works = [waited(call()) for call in calls]
    torch.cuda.synchronize()
    return [work._get_duration() * 1e6 for work in works]


def waited(work: dist.Work) -> dist.Work:
    """Let what comes next wait for it."""
    work.wait()
    return work


def on_host(calls: list[Call]) -> list[float]:
    """Make one after another."""
    ends = [time.perf_counter_ns()]
    for call in calls:
        call().wait()
        ends.append(time.perf_counter_ns())
    return [float(end - begin) for begin, end in pairwise(ends)]


def call_of(row: dict[str, Any], device: torch.device) -> Call | None:
    """Return what begins a call of a row's kind and size."""
    dtype, ranks, rank = torch_dtype(row["dtype"]), dist.get_world_size(), dist.get_rank()
    if dtype is None:
        return None
    shape = (ranks, row["bytes"] // dtype.itemsize // ranks)
    whole = torch.zeros(shape, dtype=dtype, device=device)
    part = torch.zeros_like(whole[0]) if row["kind"] == "reduce_scatter_tensor" else whole[rank]
    tensors = (whole.flatten(), part)
    calls: dict[str, Call] = {
        "all_reduce": lambda: dist.all_reduce(tensors[0], async_op=True),
        "broadcast": lambda: dist.broadcast(tensors[0], src=0, async_op=True),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(*tensors, async_op=True),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(
            *reversed(tensors), async_op=True
        ),
    }
    return calls.get(row["kind"])


if __name__ == "__main__":
    main()
