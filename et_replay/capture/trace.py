"""Iterations of a script in, its execution trace in which each has a mark out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ExecutionTraceObserver, ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from et_replay.capture.kernels import save_kernel_sources
from et_replay.captured_files import RESOURCES, TRACE
from et_replay.errors import headline
from et_replay.script.telling import tell


class TraceRecorder:
    """Records one execution trace; made when it is to begin."""

    def __init__(self, path: Path) -> None:
        """Begin; raises RuntimeError if the script records an execution trace of its own."""
        self.path = path
        self.open_mark: Any = None
        path.unlink(missing_ok=True)
        self._observer = ExecutionTraceObserver()
        self._observer.register_callback(str(path))
        if not path.exists():
            # It is the script's observer that torch has registered, and must not be closed by ours.
            self._observer._registered = False
            raise RuntimeError("the script records an execution trace of its own")
        self._observer.start()
        self._launches = _LaunchRecorder() if _compiles_kernels() else None

    def mark(self, name: str | None) -> None:
        """Close the open mark, and open one of this name, if any."""
        # Not by record_function: that one is watched, as the script's marks are.
        if self.open_mark is not None:
            with torch._C.DisableTorchFunctionSubclass():
                torch.ops.profiler._record_function_exit._RecordFunction(self.open_mark)
        self.open_mark = None
        if name is not None:
            self.open_mark = torch.ops.profiler._record_function_enter_new(name, None)

    def stop(self) -> None:
        """End the trace and its file."""
        self.mark(None)
        if self._launches is not None:
            self._launches.stop()
        if "torch._inductor.codecache" in sys.modules:
            self._observer.set_extra_resource_collection(True)
        self._observer.unregister_callback()
        try:
            save_kernel_sources(self.path, self.path.with_name(resources_of(self.path.name)))
        except Exception as error:
            tell(f"warning: sources of kernels were not saved: {headline(error)}")

    def is_whole(self) -> bool:
        """Tell whether all of the trace came to its file: the observer does not say."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - 16))
            return file.read().rstrip().endswith(b"}")

    def abandon(self) -> None:
        """Leave the file to the process that this one was forked from."""
        self._observer._registered = False
        _point_to_nowhere(self.path)


def resources_of(name: str) -> str:
    """Name the folder that the observer makes beside a trace."""
    return f"{name.removesuffix(TRACE)}{RESOURCES}"


def _compiles_kernels() -> bool:
    """Tell whether the script runs kernels that it compiled, which show only in a profile."""
    profiled: bool = autograd_profiler._is_profiler_enabled
    return "torch._inductor.codecache" in sys.modules and "triton" in sys.modules and not profiled


class _LaunchRecorder:
    """Lets the launches of compiled kernels appear in the trace.

    They are calls that PyTorch records only while a profiler is on, and with their arguments only
    while that records shapes. The script's own profiler comes first: only one can be on.
    """

    def __init__(self) -> None:
        self._profiler: _KinetoProfile | None = _KinetoProfile(
            activities=[ProfilerActivity.CPU], record_shapes=True
        )
        self._profiler.start()
        prepare: Callable[[Any], Any] = autograd_profiler.profile._prepare_trace

        def prepare_other(other: Any) -> Any:
            self.stop()
            return prepare(other)

        self._prepare = prepare
        setattr(autograd_profiler.profile, "_prepare_trace", prepare_other)  # noqa: B010

    def stop(self) -> None:
        """Stop, if it has not."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            setattr(autograd_profiler.profile, "_prepare_trace", self._prepare)  # noqa: B010
            profiler.stop()


def _point_to_nowhere(path: Path) -> None:
    """Let what this process still has to write to `path` go nowhere."""
    folder = Path("/proc/self/fd")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for link in folder.iterdir() if folder.is_dir() else ():
        try:
            if Path(os.readlink(link)) == path:
                os.dup2(nowhere, int(link.name))
        except OSError:
            continue
    os.close(nowhere)
