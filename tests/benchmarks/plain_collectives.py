"""Sizes of collectives in, the time that torch.distributed alone takes for each out.

    torchrun --standalone --nproc-per-node 2 tests/benchmarks/plain_collectives.py ROWS.json

ROWS.json lists objects with `kind`, `dtype` and `bytes`, as in a replay's `--json`; rank 0 prints
an object for each, with times in ns: `loop_ns` is that of a loop of calls, one after another as in
NCCL's own tests, by their number, `call_ns` on GPUs what NCCL says of a call by itself, without
waiting for another rank. Each call has buffers of its own, which no cache holds. It is null for a
kind that this does not know.
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

WARMUP, CALLS, TURNS = 5, 20, 5
HELD = 20_000_000
"""Cycles for which a GPU is kept busy: the host launches a loop meanwhile."""
Call = Callable[[int], dist.Work]


def main() -> None:
    """Take the times of each row."""
    os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    times = [times_of(row, device) for row in json.loads(Path(sys.argv[1]).read_text())]
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.barrier()
    dist.destroy_process_group()


def times_of(row: dict[str, Any], device: torch.device) -> dict[str, float] | None:
    """Return the times of one call, in ns: the median of several loops, and of all their calls."""
    call = call_of(row, device)
    if call is None:
        return None
    for number in range(WARMUP):
        call(number).wait()
    loops, of_calls = [], []
    for _ in range(TURNS):
        loop, durations = measured(call, device)
        loops.append(loop)
        of_calls += [without_waiting(row["kind"], times) for times in durations]
    times = {"loop_ns": statistics.median(loops)}
    if of_calls:
        times["call_ns"] = statistics.median(of_calls)
    return times


def without_waiting(kind: str, times: list[float]) -> float:
    """Return the time of a call of all ranks: where each waits for all, of the one that came last.

    The one that sends a broadcast does not wait, and may be done before it has arrived.
    """
    return max(times) if kind == "broadcast" else min(times)


def measured(call: Call, device: torch.device) -> tuple[float, list[list[float]]]:
    """Make CALLS calls; return the time of one, and that of each call on each rank."""
    dist.barrier()
    if device.type != "cuda":
        begin = time.perf_counter_ns()
        for number in range(CALLS):
            call(number).wait()
        return (time.perf_counter_ns() - begin) / CALLS, []
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    works = []
    torch.cuda._sleep(HELD)
    before.record()
    for number in range(CALLS):
        works.append(call(number))
        works[-1].wait()
    after.record()
    torch.cuda.synchronize(device)
    durations = torch.tensor([work._get_duration() * 1e6 for work in works], device=device)
    of_ranks = [torch.empty_like(durations) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, durations)
    return before.elapsed_time(after) * 1e6 / CALLS, torch.stack(of_ranks, dim=1).tolist()


def call_of(row: dict[str, Any], device: torch.device) -> Call | None:
    """Return what begins one call of a row's kind and size."""
    dtype, ranks = torch_dtype(row["dtype"]), dist.get_world_size()
    if dtype is None:
        return None
    shape = (CALLS, row["bytes"] // dtype.itemsize)
    wholes = torch.zeros(shape, dtype=dtype, device=device)
    parts = wholes.new_zeros(CALLS, shape[1] // ranks)
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
