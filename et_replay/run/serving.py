"""A process of a script that has just imported torch in, its memory served by our allocator out.

What serves is installed before CUDA is used. Each iteration that ends is told to the allocator and
to the command that started the script.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import torch

from et_replay import pluggable
from et_replay.allocator_figures import MemoryStatistics
from et_replay.captured_files import PLAN, captured_file
from et_replay.errors import EtReplayError
from et_replay.planning import read_plan, run_plan
from et_replay.planning.plan_folder import plan_in
from et_replay.run.compatibility import answer_for_torch
from et_replay.run.messages import Message, send
from et_replay.run.settings import RunSettings
from et_replay.script.iterations import watch_iterations
from et_replay.script.rank import rank_of_process
from et_replay.simulation import TORCH

Figures = dict[str, Any]

_PEAKS = ("peak_allocated_bytes", "peak_active_bytes", "peak_reserved_bytes")


def serve(settings: Mapping[str, Any]) -> None:
    """Serve this process; what cannot be ends it with one sentence."""
    serving = _Serving(msgspec.convert(settings, RunSettings))
    serving.do_or_end(serving.install)
    watch_iterations(serving.end_iteration, serving.settings.mark)


class _Serving:
    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self._ended = 0
        self._time = time.perf_counter_ns()

    def install(self) -> None:
        """Put the allocator in place of PyTorch's, and let it follow the plan of this rank."""
        name, _, conf = self.settings.allocator.partition(":")
        if name == TORCH:
            pluggable.configure_torch(conf)
            return
        pluggable.install(self.settings.allocator, self.settings.device_memory)
        answer_for_torch()
        if self.settings.plan is not None:  # many processes import torch, and few use CUDA
            torch.cuda._lazy_call(lambda: self.do_or_end(self._follow))  # type: ignore[no-untyped-call]

    def _follow(self) -> None:
        name = captured_file(Path(), rank_of_process(), PLAN).name
        path = plan_in(self.settings.plan or "", name)
        pluggable.follow(run_plan(read_plan(path)), _device_index())

    def do_or_end(self, work: Callable[[], None]) -> None:
        """Do what the script cannot go on without."""
        try:
            work()
        except EtReplayError as error:
            self.tell({"refused": str(error)})
            raise SystemExit(error.exit_code) from None

    def end_iteration(self, by: str) -> None:
        """Let the next iteration begin, and tell of the one that has ended."""
        ended, self._ended = self._ended, self._ended + 1
        now = time.perf_counter_ns()
        duration, self._time = now - self._time, now
        figures = self._figures()
        if figures is not None:
            self.tell({"iteration": ended, "by": by, "duration_ns": duration, "figures": figures})

    def tell(self, message: Message) -> None:
        """Send a message with the rank of this process."""
        send(Path(self.settings.messages), {"rank": rank_of_process(), **message})

    def _figures(self) -> Figures | None:
        """Return what the iteration took that has just ended; None where CUDA is not in use."""
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return None
        device = torch.cuda.current_device()
        if pluggable.is_installed():
            figures = pluggable.begin_iteration(self._ended).get(device)
            return None if figures is None else asdict(figures)
        stats = MemoryStatistics.of(torch.cuda.memory_stats(device))
        torch.cuda.reset_peak_memory_stats(device)
        return {name: getattr(stats, name) for name in _PEAKS}


def _device_index() -> int:
    """Return the device that this process will use, as far as its environment tells."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    return local if local < torch.cuda.device_count() else 0
