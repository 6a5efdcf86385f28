"""What a captured run told of its torch and its GPU in, the defaults of a simulation out."""

from __future__ import annotations

import re
from dataclasses import replace

from et_replay.commands import options
from et_replay.events import MemoryHistory
from et_replay.formats.captured_run import CapturedRun
from et_replay.simulation import nearest_version

_VERSION = re.compile(r"\d+\.\d+")


def version_of(run: CapturedRun | None, asked: str | None = None) -> str | None:
    """Return whose allocator to imitate: as asked for, else the nearest to that of the run."""
    if asked is not None or run is None or _VERSION.match(run.header.torch) is None:
        return asked
    return nearest_version(run.header.torch)


def with_gpu(history: MemoryHistory, run: CapturedRun | None) -> MemoryHistory:
    """Let a history know how much memory the GPU had that its run was on, if it was on one."""
    if run is None:
        return history
    return replace(history, gpu_memory=run.header.device_memory_bytes)


def run_of(path: str, trace: str) -> CapturedRun | None:
    """Find the process of the captured run at `path` that wrote `trace`; None at other paths."""
    return next((run for run in options.runs_at(path) if str(run.trace) == trace), None)
