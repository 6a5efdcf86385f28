"""Buffers in, their offsets in one arena out: the planner, checked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from et_replay import _core
from et_replay.buffers import Buffers
from et_replay.errors import PlanError
from et_replay.events import Int64Array


@dataclass(frozen=True)
class Effort:
    """How hard to try.

    `level` bounds the steps of the search, and with it alone the answer is always the same. With a
    `timeout`, in seconds, the best answer so far is taken when it is over.
    """

    level: Literal["fast", "best"] = "fast"
    timeout: float | None = None


FAST = Effort()


@dataclass(frozen=True, eq=False)
class Packing:
    """An offset for every buffer, 0 for one that takes no memory.

    `lower_bound_bytes` is the most that lives at once, or what a fixed offset forces; `proven` says
    that no arena can be smaller than this one, as it equals that bound or as the search tried
    everything.
    """

    offsets: Int64Array
    arena_bytes: int
    lower_bound_bytes: int
    proven: bool
    method: str
    planning_time_ns: int


def plan_buffers(buffers: Buffers, effort: Effort = FAST) -> Packing:
    """Choose offsets so that no two buffers that live at the same time share a byte.

    Raises PlanError for buffers that cannot be planned: negative sizes, fixed offsets that overlap,
    more than 2^61 bytes at once.
    """
    started = time.perf_counter_ns()
    try:
        offsets, arena, lower_bound, proven, method = _core.plan(
            _native(buffers), best=effort.level == "best", timeout=effort.timeout or 0.0
        )
    except (ValueError, OverflowError) as error:
        raise PlanError(str(error)) from None
    elapsed = time.perf_counter_ns() - started
    return Packing(offsets, arena, lower_bound, proven, method, elapsed)


def find_fault(buffers: Buffers, offsets: Int64Array, arena_bytes: int) -> str:
    """Say what is wrong with offsets, the first fault in a sentence; "" where nothing is."""
    return _core.find_fault(_native(buffers), offsets, arena_bytes)


def lower_bound(buffers: Buffers) -> int:
    """Return the most bytes that live at once."""
    try:
        return _core.lower_bound(_native(buffers))
    except OverflowError as error:
        raise PlanError(str(error)) from None


def _native(buffers: Buffers) -> _core.Buffers:
    return _core.Buffers(
        buffers.size,
        buffers.alignment,
        buffers.offset,
        buffers.start,
        buffers.end,
        buffers.again_start,
        buffers.again_end,
    )
