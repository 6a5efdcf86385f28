"""A trace in, its windows out: one for each ProfilerStep mark, or the whole trace."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from et_replay.errors import UsageError
from et_replay.execution_trace import ExecutionTrace

_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")
_ID_RANGE = re.compile(r"(\d*):(\d*)")


class Window(NamedTuple):
    """Positions [begin, end) of a trace's nodes, under the name of their mark."""

    name: str
    begin: int
    end: int


def windows(trace: ExecutionTrace) -> list[Window]:
    """List the windows of `trace` in order, empty ones too.

    A step lasts from its mark to the next mark. Backward nodes run on another thread, so they
    belong to a step by position, not by parent. The last step has no next mark: it ends where its
    own thread does something that is not below the mark any more.
    """
    marks = [p for p, name in enumerate(trace.names) if _STEP.match(name)]
    if not marks:
        return [Window("all", 0, len(trace))]
    ends = [*marks[1:], _end_of_step(trace, marks[-1])]
    return [Window(trace.names[b], b, e) for b, e in zip(marks, ends, strict=True)]


def select_window(trace: ExecutionTrace, text: str | None = None) -> Window:
    """Pick the window that `text` names; without it the last one that holds an operator, or all.

    `text` is a mark (`ProfilerStep#4`, or just `4`), `first`, `last`, `all`, or node ids
    `FIRST:END` (END not included, may be left out). Raises UsageError when there is no such window.
    """
    if text == "all":
        return Window("all", 0, len(trace))
    choices = windows(trace)
    if text is None or text in ("first", "last"):
        ordered = choices if text == "first" else choices[::-1]
        whole = Window("all", 0, len(trace))
        return next((w for w in ordered if has_operator(trace, w)), whole)
    if match := _ID_RANGE.fullmatch(text):
        return _window_of_ids(trace, int(match[1] or 0), int(match[2]) if match[2] else None)
    for window in choices:
        mark = _STEP.match(window.name)
        if text == window.name or (mark is not None and text == mark[1]):
            return window
    names = ", ".join(window.name for window in choices[:12])
    more = ", …" if len(choices) > 12 else ""
    raise UsageError(
        f"{trace.source} has no window {text!r}; it has {names}{more}"
        " (or first, last, all, node ids as 100:200)."
    )


def has_operator(trace: ExecutionTrace, window: Window) -> bool:
    """Tell whether `window` holds anything to replay."""
    return any(trace.node(p).is_operator for p in range(window.begin, window.end))


def _window_of_ids(trace: ExecutionTrace, first: int, end: int | None) -> Window:
    begin = int(np.searchsorted(trace.ids, first))
    stop = len(trace) if end is None else int(np.searchsorted(trace.ids, end))
    if begin >= stop:
        span = f"{trace.ids[0]} to {trace.ids[-1]}" if len(trace) else "none"
        raise UsageError(
            f"{trace.source} has no node in {first}:{end or ''}; its node ids are {span}."
        )
    return Window(f"{first}:{end if end is not None else ''}", begin, stop)


def _end_of_step(trace: ExecutionTrace, mark: int) -> int:
    """Find the first node of the mark's thread after all that is below the mark.

    Nodes in between that have lost their parent do not end the step.
    """
    parents, below, last = trace.parents.tolist(), {mark}, mark
    for position in range(mark + 1, len(trace)):
        if parents[position] in below:
            below.add(position)
            last = position
    thread = trace.node(mark).tid
    later = (p for p in range(last + 1, len(trace)) if trace.node(p).tid == thread)
    return next(later, len(trace))
