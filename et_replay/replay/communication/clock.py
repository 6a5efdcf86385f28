"""Calls of torch.distributed in one iteration in, when each began and how long it took out."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Groups
from et_replay.ranks.sizes import size_of
from et_replay.replay.communication.casting import Casting
from et_replay.replay.device_events import nanoseconds, timing_event
from et_replay.replay.result import CollectiveTimes

Interval = tuple[int, int]
"""When a call began, in ns since the iteration did, and how long it took."""


class HostCallClock:
    """Reads the host's clock: begin, and end, which gloo tells from a thread of its own."""

    def __init__(self) -> None:
        self._origin = 0
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def start(self) -> None:
        """Let an iteration begin now."""
        self._begins, self._ends = {}, {}
        self._origin = time.perf_counter_ns()

    def begin(self, index: int) -> None:
        """Note that call `index` begins."""
        self._begins[index] = time.perf_counter_ns()

    def launched(self, index: int, work: Any) -> Any:
        """Take the time when `work` is done; returns what to wait for in its place."""
        if work is None:
            self.waited(index)
            return None
        try:
            work.get_future().add_done_callback(partial(self._done, index))
        except (RuntimeError, AttributeError):  # a message does not tell, and is waited for once
            return _Waiting(work, partial(self.waited, index))
        return work

    def waited(self, index: int) -> None:
        """Note that call `index` has ended, at the latest."""
        self._ends.setdefault(index, time.perf_counter_ns())

    def intervals(self) -> dict[int, Interval]:
        """Return what was noted of the iteration."""
        return {
            index: (begin - self._origin, max(0, self._ends[index] - begin))
            for index, begin in self._begins.items()
            if index in self._ends
        }

    def _done(self, index: int, future: Any) -> None:
        self.waited(index)


class _Waiting:
    """Waits for a Work in a thread of its own, to see when it is done."""

    def __init__(self, work: Any, done: Callable[[], None]) -> None:
        self._work = work
        self._done = done
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it is done; raises what waiting for it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def is_completed(self) -> bool:
        """Tell whether it is done."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work.wait()
            self._done()
        except Exception as error:  # whatever it is, who waits is told
            self._error = error


class EventCallClock:
    """Records events: when the device came to a call, and when the call had ended.

    A collective runs on a stream of NCCL's own, and its Work lets another stream wait for it; that
    is one that nothing else runs on, so that waiting keeps nothing from running. The Work knows for
    how long it was under way there (TORCH_NCCL_ENABLE_TIMING): without the time in which the host
    launched it, and collectives before it were not done.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._origin = timing_event()
        self._begins: dict[int, torch.cuda.Event] = {}
        self._ends: dict[int, torch.cuda.Event] = {}
        self._works: dict[int, Any] = {}

    def start(self) -> None:
        """Let an iteration begin now."""
        self._begins, self._ends, self._works = {}, {}, {}
        self._origin.record(torch.cuda.current_stream(self._device))

    def begin(self, index: int) -> None:
        """Note that call `index` begins."""
        event = self._begins[index] = timing_event()
        event.record(torch.cuda.current_stream(self._device))

    def launched(self, index: int, work: Any) -> Any:
        """Note when `work` is done; returns what to wait for in its place."""
        stream = torch.cuda.current_stream(self._device)
        if work is not None:
            # Only a wait of the stream: what the Work keeps alive is kept by who waits later.
            with torch.cuda.stream(self._side):
                work.wait()
            stream = self._side
            self._works[index] = work
        event = self._ends[index] = timing_event()
        event.record(stream)
        return work

    def waited(self, index: int) -> None:
        """Do nothing: the end is known."""

    def intervals(self) -> dict[int, Interval]:
        """Return what was noted of the iteration; waits for the device."""
        torch.cuda.synchronize(self._device)
        return {index: self._interval(index) for index in self._begins if index in self._ends}

    def _interval(self, index: int) -> Interval:
        begin, end = self._begins[index], self._ends[index]
        taken = min(begin.elapsed_time(end), _duration(self._works.get(index)))
        started = self._origin.elapsed_time(end) - taken
        return nanoseconds(started), nanoseconds(taken)


def call_clock_for(device: torch.device) -> HostCallClock | EventCallClock:
    """Make the clock for collectives between tensors of `device`."""
    return EventCallClock(device) if device.type == "cuda" else HostCallClock()


def collective_times(
    iterations: Sequence[dict[int, Interval]],
    collectives: Sequence[Collective],
    groups: Groups,
    casting: Casting,
) -> tuple[CollectiveTimes, ...]:
    """Gather the calls of all iterations by kind, group and size, in the order of first calls.

    Groups and sizes are those that were played: of processes, and of what these moved.
    """
    found: dict[tuple[str, tuple[int, ...], str, int], list[Interval]] = defaultdict(list)
    for intervals in iterations:
        for index, interval in sorted(intervals.items()):
            collective = collectives[index]
            group = groups[collective.group]
            size = size_of(collective, len(group.ranks), casting.present(group))
            key = (collective.kind, casting.key(group)[0], collective.dtype, size)
            found[key].append(interval)
    return tuple(
        CollectiveTimes(*key, *_columns(intervals), len(iterations))
        for key, intervals in found.items()
    )


def _columns(intervals: Iterable[Interval]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pairs = list(intervals)
    return tuple(taken for _, taken in pairs), tuple(begin for begin, _ in pairs)


def _duration(work: Any) -> float:
    """Return the milliseconds in which a Work was under way, infinity where it does not tell."""
    try:
        return math.inf if work is None else float(work._get_duration())
    except RuntimeError:
        return math.inf
