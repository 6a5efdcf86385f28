"""Sizes of collectives in, the time that torch.distributed alone takes for each out.

    torchrun --standalone --nproc-per-node 2 tests/benchmarks/plain_collectives.py ROWS.json

ROWS.json lists objects with `kind`, `dtype` and `bytes`, as in a replay's `--json`; rank 0 prints
the list of times in ns, of a call without waiting for another rank: on GPUs what NCCL says of it.
Calls of all rows take turns, with nothing between them, and each has buffers of its own, as in a
job; gathers are in place, as those of FSDP. It is null for a kind that this does not know.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from et_replay.replay.dtypes import torch_dtype

WARMUP, TURNS, CALLS = 1, 5, 20
HELD = 4_000_000
"""Cycles for which a GPU is kept busy, by row: the host launches the calls of a turn meanwhile."""
Call = Callable[[int], dist.Work]


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


def time_of(kind: str, turns: tuple[list[list[float]], ...]) -> float:
    """Return the time of a call without waiting.

    Where each waits for all that is the time of the rank that came last; the one that sends a
    broadcast does not wait, and may be done before it has arrived.
    """
    without_waiting = max if kind == "broadcast" else min
    return statistics.median(without_waiting(times) for calls in turns for times in calls)


def timed(calls: list[Call], device: torch.device) -> list[list[list[float]]]:
    """Make all calls in turn, over and over; return by call the ns of each time, on each rank."""
    dist.barrier()
    timer = on_gpu if device.type == "cuda" else on_host
    mine = torch.tensor(timer(calls), device=device, dtype=torch.float64)
    of_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, mine)
    times: list[list[list[float]]] = torch.stack(of_ranks, dim=-1).transpose(0, 1).tolist()
    return times


def on_gpu(calls: list[Call]) -> list[list[float]]:
    """Launch all while the GPU is held."""
    torch.cuda._sleep(HELD * len(calls))
    works = [[waited(call(number)) for call in calls] for number in range(CALLS)]
    torch.cuda.synchronize()
    return [[work._get_duration() * 1e6 for work in row] for row in works]


def waited(work: dist.Work) -> dist.Work:
    """Let what comes next wait for it."""
    work.wait()
    return work


def on_host(calls: list[Call]) -> list[list[float]]:
    """Make one after another."""
    ends = [time.perf_counter_ns()]
    for number in range(CALLS):
        for call in calls:
            call(number).wait()
            ends.append(time.perf_counter_ns())
    times = torch.tensor(ends, dtype=torch.float64).diff().reshape(CALLS, len(calls))
    listed: list[list[float]] = times.tolist()
    return listed


def call_of(row: dict[str, Any], device: torch.device) -> Call | None:
    """Return what begins a call of a row's kind and size, by its number."""
    dtype, ranks, rank = torch_dtype(row["dtype"]), dist.get_world_size(), dist.get_rank()
    if dtype is None:
        return None
    shape = (CALLS, ranks, row["bytes"] // dtype.itemsize // ranks)
    wholes = torch.zeros(shape, dtype=dtype, device=device).flatten(1)
    own = wholes.view(shape)[:, rank]
    parts = wholes.new_zeros(CALLS, shape[-1]) if row["kind"] == "reduce_scatter_tensor" else own
    calls: dict[str, Call] = {
        "all_reduce": lambda k: dist.all_reduce(wholes[k], async_op=True),
        "broadcast": lambda k: dist.broadcast(wholes[k], src=0, async_op=True),
        "all_gather_into_tensor": lambda k: dist.all_gather_into_tensor(
            wholes[k], parts[k], async_op=True
        ),
        "reduce_scatter_tensor": lambda k: dist.reduce_scatter_tensor(
            parts[k], wholes[k], async_op=True
        ),
    }
    return calls.get(row["kind"])


if __name__ == "__main__":
    main()
