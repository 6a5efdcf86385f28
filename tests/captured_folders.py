"""Folders of captured runs, made from recordings that are there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

HEADER = {
    "et_replay_run": 1,
    "et_replay": "1.0",
    "words": ["python", "train.py"],
    "pid": 4321,
    "torch": "2.11.0+cu130",
    "python": "3.12.3",
    "device": "cuda:0 NVIDIA H200",
    "device_memory_bytes": 150109880320,
    "allocator_settings": "",
    "skip": 2,
    "iterations": 3,
    "time_us": 1_000_000,
}


def write_run(
    folder: Path,
    *,
    ends: Sequence[int],
    rank: int = 0,
    world_size: int = 1,
    snapshot: Path | None = None,
    trace: Path | None = None,
    more: Sequence[object] = ({"end": "exit", "time_us": 9_000_000},),
) -> Path:
    """Write what a process tells whose iterations end at `ends`, beside its files; return it."""
    folder.mkdir(exist_ok=True)
    lines: list[object] = [{**HEADER, "rank": rank, "world_size": world_size}]
    for iteration, (begin, end) in enumerate(zip([1_000_000, *ends], ends, strict=False)):
        lines.append(
            {
                "iteration": iteration,
                "by": "optimizer step",
                "begin_time_us": begin,
                "end_time_us": end,
                "duration_ns": 1000 * (end - begin),
                "recorded": iteration >= 2,
                "peak_allocated_bytes": 5_000_000,
                "peak_reserved_bytes": 8_000_000,
            }
        )
    for file, name, what in (
        (trace, f"rank-{rank}.et.json", "execution trace"),
        (snapshot, f"rank-{rank}.snapshot.pickle", "memory snapshot"),
    ):
        if file is not None:
            shutil.copyfile(file, folder / name)
            lines.append({"wrote": name, "what": what})
    path = folder / f"rank-{rank}.run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))
    return path
