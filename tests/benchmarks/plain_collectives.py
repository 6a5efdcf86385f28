"""Sizes of collectives in, the time that torch.distributed alone takes for each out.

    torchrun --standalone --nproc-per-node 2 tests/benchmarks/plain_collectives.py ROWS.json

ROWS.json lists objects with `kind`, `dtype` and `bytes`, as in a replay's `--json`; rank 0 prints
the list of times in ns: that of a loop of calls, one after another as in NCCL's own tests, by their
number. It is null for a kind that this does not know.
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


def main() -> None:
    """Take the time of each row."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    times = [time_of(row, device) for row in json.loads(Path(sys.argv[1]).read_text())]
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.barrier()
    dist.destroy_process_group()


def time_of(row: dict[str, Any], device: torch.device) -> float | None:
    """Return the time of one call, in ns: the median of several loops."""
    call = call_of(row, device)
    if call is None:
        return None
    for _ in range(WARMUP):
        call()
    return statistics.median(loop(call, device) for _ in range(TURNS))


def loop(call: Callable[[], object], device: torch.device) -> float:
    """Make CALLS calls; return the time of one."""
    dist.barrier()
    if device.type != "cuda":
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        return (time.perf_counter_ns() - begin) / CALLS
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    for _ in range(CALLS):
        call()
    after.record()
    torch.cuda.synchronize(device)
    return before.elapsed_time(after) * 1e6 / CALLS


def call_of(row: dict[str, Any], device: torch.device) -> Callable[[], object] | None:
    """Return what makes one call of a row's kind and size."""
    dtype, ranks = torch_dtype(row["dtype"]), dist.get_world_size()
    if dtype is None:
        return None
    whole = torch.zeros(row["bytes"] // dtype.itemsize, dtype=dtype, device=device)
    part = whole.new_zeros(len(whole) // ranks)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(part, whole),
    }
    return calls.get(row["kind"])


if __name__ == "__main__":
    main()
