"""A job in, how long each collective of its last iterations took, on each rank, out.

    torchrun --standalone --nproc-per-node 2 \\
        tests/benchmarks/job_collectives.py FOLDER SCRIPT WORDS…

Runs the script as it is, over NCCL; before it destroys its process groups each rank writes
`FOLDER/rank-R.json`, a list of `kind`, `dtype`, `bytes` and `time_ns` in the order of the calls, as
the flight recorder of PyTorch has them (torch/csrc/distributed/c10d/FlightRecorder.hpp), which
keeps the last ones.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as bindings

KINDS = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
}
DTYPES = {"Float": (4, "float"), "Long": (8, "long int")}
RETIRED = 1.0
"""Seconds after which the recorder knows the end of all calls."""


def main() -> None:
    """Run the script."""
    folder = Path(sys.argv[1])
    os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        os.environ[name] = "2000"
    destroy = dist.destroy_process_group

    def write_and_destroy(*words: Any) -> None:
        torch.cuda.synchronize()
        time.sleep(RETIRED)
        (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(calls()))
        destroy(*words)

    dist.destroy_process_group = write_and_destroy
    script = sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def calls() -> list[dict[str, Any]]:
    """Return the collectives that the recorder has."""
    dump = getattr(bindings, "_dump_nccl_trace", None) or bindings._dump_fr_trace
    found = []
    for entry in pickle.loads(dump())["entries"]:
        kind = entry["profiling_name"].rpartition(":")[2]
        duration = entry.get("duration_ms")
        sizes = {"input": entry["input_sizes"], "output": entry["output_sizes"]}
        size, dtype = DTYPES.get((entry["input_dtypes"] or [""])[0], (0, ""))
        if duration is None or not dtype:
            continue
        most = max(sum(math.prod(shape) for shape in shapes) for shapes in sizes.values())
        found.append(
            {
                "kind": KINDS.get(kind, kind),
                "dtype": dtype,
                "bytes": most * size,
                "time_ns": duration * 1e6,
            }
        )
    return found


if __name__ == "__main__":
    main()
