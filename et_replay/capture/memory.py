"""The CUDA memory of this process in, its full history as a snapshot file out.

Works on any state of CUDA without initialising it: what is to be done waits until the script does.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from et_replay.errors import headline
from et_replay.script.rank import device_of_process
from et_replay.script.telling import tell
from et_replay.whole_files import appearing

OutOfMemory = Callable[[int, int, int], None]


class MemoryRecorder:
    """Records the history from the first allocation of this process on."""

    def __init__(self, out_of_memory: OutOfMemory) -> None:
        """Begin; `out_of_memory` gets device, bytes asked for, and bytes the device has free."""
        self._out_of_memory = out_of_memory
        self._recording = True
        torch.cuda._lazy_call(self._start)  # type: ignore[no-untyped-call]

    @property
    def recording(self) -> bool:
        """Whether there is a history to write."""
        return self._recording and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]

    def _start(self) -> None:
        """Start; what it raised would fail the script's first use of CUDA."""
        if not self._recording:
            return
        try:
            torch.cuda.memory._record_memory_history(
                "all", context="alloc", stacks="python", max_entries=sys.maxsize
            )
            torch._C._cuda_attach_out_of_memory_observer(self._observe)  # type: ignore[attr-defined]
        except Exception as error:
            self._recording = False
            tell(f"warning: CUDA's memory is not recorded: {headline(error)}")

    def _observe(self, device: int, requested: int, limit: int, free: int) -> None:
        """Tell that a request did not fit; raising would hide that from the script."""
        if self._recording:
            try:
                self._out_of_memory(device, requested, free)
            except Exception as error:
                tell(f"warning: out of memory, not recorded: {headline(error)}")

    def write(self, path: Path) -> None:
        """Write the snapshot, which appears complete or not at all."""
        with appearing(path, force=True) as partial, partial.open("wb") as file:
            pickle.dump(torch.cuda.memory._snapshot(), file)

    def stop(self) -> None:
        """Record no more."""
        if self.recording:
            torch.cuda.memory._record_memory_history(None)
        self._recording = False

    def abandon(self) -> None:
        """Leave all to the process that this one was forked from; CUDA cannot be used in both."""
        self._recording = False


def peaks() -> tuple[int | None, int | None]:
    """Return the highest bytes allocated and reserved, as torch.cuda tells them.

    That is since the script reset them last, or from its start on. None without CUDA.
    """
    statistics = torch.cuda.memory_stats_as_nested_dict()
    if not statistics:
        return None, None
    return tuple(statistics[name]["all"]["peak"] for name in ("allocated_bytes", "reserved_bytes"))


def device_facts() -> dict[str, object]:
    """Name the device that the script uses."""
    device = device_of_process()
    if device == "cpu":
        return {"device": device, "device_memory_bytes": None}
    properties = torch.cuda.get_device_properties(device)
    return {"device": f"{device} {properties.name}", "device_memory_bytes": properties.total_memory}
