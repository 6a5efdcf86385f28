"""What a script does in, the files of its capture out: a chosen window of its iterations."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from et_replay import __version__
from et_replay.capture.endings import Endings
from et_replay.capture.memory import MemoryRecorder, device_facts, peaks
from et_replay.capture.run_log import RunLog
from et_replay.capture.trace import TraceRecorder
from et_replay.captured_files import RUN, SNAPSHOT, TRACE
from et_replay.errors import headline
from et_replay.script.iterations import annotations_seen, watch_iterations
from et_replay.script.telling import tell
from et_replay.torch_settings import torch_settings

_SCRIPTS_MARK = "mark ProfilerStep#"
_TOLD_AFTER_WINDOW = 100
"""So many iterations after the window get a line each; of further ones only the number is told."""
_LONGEST_COMMAND = 120
"""Characters of a command in a warning; a process that another one forks may have pages of it."""


@dataclass(frozen=True)
class Settings:
    """What to capture: iterations [skip, skip + iterations), found by `mark` or by themselves."""

    output: Path
    skip: int
    iterations: int
    mark: str | None
    words: tuple[str, ...]

    @property
    def end(self) -> int:
        """The first iteration after the window."""
        return self.skip + self.iterations


def begin(settings: Mapping[str, Any]) -> None:
    """Capture this process, until it ends, as `et_replay capture` asks."""
    recorder = Recorder(
        Settings(
            output=Path(settings["output"]),
            skip=settings["skip"],
            iterations=settings["iterations"],
            mark=settings["mark"],
            words=tuple(settings["words"]),
        )
    )
    recorder.begin()
    Endings(recorder).install()


class Recorder:
    """Follows the iterations of one process, and begins and ends the recordings."""

    def __init__(self, settings: Settings) -> None:
        self.window_ended: Callable[[], None] = lambda: None
        self._settings = settings
        self._stop_watching: Callable[[], None] = lambda: None
        self._start()

    def _start(self) -> None:
        """Know nothing of the process but that it is there."""
        self._log = RunLog(self._settings.output, _facts(self._settings))
        self._memory = MemoryRecorder(self._out_of_memory)
        self._trace: TraceRecorder | None = None
        self._told_settings: dict[str, bool | str] = {}
        self._traces = True
        self._in_window = True  # or before it
        self._iteration = 0
        self._scripts_marks = False
        self._failure: BaseException | None = None
        self._begin_iteration()

    def begin(self) -> None:
        """Begin with iteration 0."""
        self._stop_watching = watch_iterations(
            lambda by: self._guard(lambda: self._ended(by)),
            self._settings.mark,
            lambda: self._guard(self._outside),
        )
        if self._settings.skip == 0:
            self._begin_trace()
        os.register_at_fork(after_in_child=self._forked)

    def failed(self, error: BaseException) -> None:
        """Tell the exception that ends the script, once."""
        if self._failure is not error:
            self._failure = error
            self._tell_failure(headline(error))

    def finish(self, end: str) -> None:
        """Write what is still to be written, and end."""
        told: dict[str, object] = {"end": end}
        if end == "exception" and self._failure is not None:
            told["error"] = headline(self._failure)
        if self._settings.mark is not None and self._iteration == 0:
            told["annotations"] = annotations_seen()
        self._stop_watching()
        self._end_window()
        self._log.write({**told, "iterations": self._iteration, "time_us": _now()})
        self._log.close()

    def _forked(self) -> None:
        """Begin anew in a child of this process, which has files only if it turns out a rank."""
        if self._log.closed:
            return
        try:
            if self._trace is not None:
                self._trace.abandon()
            self._memory.abandon()
            self._log.close()
            self._start()
        except Exception as error:
            self._stop_watching()
            tell(f"warning: this fork is not captured: {headline(error)}")

    def _guard(self, work: Callable[[], None]) -> None:
        """End the capture, but not the script, where it fails."""
        try:
            work()
        except Exception as error:
            tell(f"warning: the capture ends here: {headline(error)}")
            self._stop_watching()
            self._traces = False
            with suppress(Exception):
                self._end_window()

    def _begin_iteration(self) -> None:
        self._begin_us, self._begin_ns = _now(), time.perf_counter_ns()

    def _ended(self, by: str) -> None:
        """Tell the iteration that ends here."""
        duration = time.perf_counter_ns() - self._begin_ns
        if self._iteration < self._settings.end + _TOLD_AFTER_WINDOW:
            self._tell_iteration(by, duration)
        self._iteration += 1
        if self._trace is not None:
            self._tell_settings()
        self._scripts_marks = by.startswith(_SCRIPTS_MARK)
        if not self._log.settled:
            self._settle()
        if self._in_window and self._iteration > self._settings.end:
            self._end_window()  # a mark of the script's has stayed open
        self._begin_iteration()

    def _tell_iteration(self, by: str, duration: int) -> None:
        allocated, reserved = peaks()
        self._log.write(
            {
                "iteration": self._iteration,
                "by": by,
                "begin_time_us": self._begin_us,
                "end_time_us": _now(),
                "duration_ns": duration,
                "recorded": self._trace is not None and self._iteration < self._settings.end,
                "peak_allocated_bytes": allocated,
                "peak_reserved_bytes": reserved,
            }
        )

    def _settle(self) -> None:
        if not self._log.settle(device_facts()):
            self._stop_watching()
            self._memory.stop()
            holder = self._log.holder()
            tell(
                f"warning: {_process(self._log.facts)} is not captured, as {_process(holder)} has"
                f" been as rank {holder.get('rank')} in {self._settings.output}: capture its"
                " command alone, with another folder."
            )

    def _outside(self) -> None:
        """Begin, go on with or end the recordings, where no mark of the script's is open."""
        if not self._in_window or self._iteration < self._settings.skip:
            return
        if self._iteration >= self._settings.end:
            self._end_window()
            self._begin_iteration()
        elif self._trace is not None:
            self._mark()
        elif self._traces:
            self._begin_trace()
            self._begin_iteration()

    def _begin_trace(self) -> None:
        path = self._log.path(TRACE)
        if path is None:
            return
        try:
            self._trace = TraceRecorder(path)
        except RuntimeError as error:
            self._traces = False
            tell(f"warning: no execution trace is recorded: {error}.")
            return
        self._tell_settings()
        self._mark()

    def _tell_settings(self) -> None:
        settings = torch_settings()
        if settings != self._told_settings:
            self._told_settings = settings
            self._log.write({"torch_settings": settings})

    def _mark(self) -> None:
        if self._trace is not None:
            own = None if self._scripts_marks else f"ProfilerStep#{self._iteration}"
            self._trace.mark(own)

    def _end_window(self) -> None:
        if not self._in_window:
            return
        self._in_window = False
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.stop()
            if not trace.is_whole():
                self._tell_failure(f"{trace.path} is not whole: the disk may be full")
                tell(f"warning: {trace.path} is not whole: the disk may be full.")
            self._log.write({"wrote": trace.path.name, "what": "execution trace"})
        self._write_snapshot()
        self._memory.stop()
        self.window_ended()

    def _write_snapshot(self) -> None:
        path = self._log.path(SNAPSHOT)
        if not self._memory.recording or path is None:
            return
        try:
            self._memory.write(path)
        except Exception as error:
            tell(f"warning: {path} was not written: {headline(error)}")
            return
        self._log.write({"wrote": path.name, "what": "memory snapshot"})

    def _out_of_memory(self, device: int, requested: int, free: int) -> None:
        """Write what is known now: the script may end without another chance."""
        self._tell_failure(
            f"torch.OutOfMemoryError: cuda:{device} has {free} bytes free, {requested} were asked"
            " for"
        )
        self._write_snapshot()

    def _tell_failure(self, text: str) -> None:
        self._log.write({"failed": text, "time_us": _now()})
        if not self._log.settled and self._log.path(RUN) is not None:
            self._log.settle(device_facts())


def _facts(settings: Settings) -> dict[str, object]:
    variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    return {
        "et_replay_run": 1,
        "et_replay": __version__,
        "words": list(settings.words),
        "process": list(sys.orig_argv),
        "pid": os.getpid(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": None,
        "device_memory_bytes": None,
        "allocator_settings": next(filter(None, map(os.environ.get, variables)), ""),
        "skip": settings.skip,
        "iterations": settings.iterations,
        "mark": settings.mark,
        "time_us": _now(),
    }


def _process(facts: Mapping[str, object]) -> str:
    """Name the process that tells `facts`, by its number and its own command."""
    words = facts.get("process")
    command = shlex.join(words) if isinstance(words, list) else "unknown"
    return f"process {facts.get('pid')} ({textwrap.shorten(command, _LONGEST_COMMAND)})"


def _now() -> int:
    """Return the time in microseconds since 1970, as `time_us` of a memory snapshot counts them."""
    return time.time_ns() // 1000
