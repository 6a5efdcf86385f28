"""What a captured run told of its torch and its GPU in, the defaults of a simulation out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from et_replay.events import MemoryHistory
from et_replay.formats.captured_run import CapturedRun
from et_replay.simulation import nearest_version

if TYPE_CHECKING:
    from et_replay.torch_settings import TorchSettings

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


def settings_of(run: CapturedRun | None) -> TorchSettings:
    """Return the settings of PyTorch in a run; raises TraceError where they cannot be."""
    if run is None:
        return {}
    from et_replay.torch_settings import checked

    return checked(run.torch_settings, run.source)
