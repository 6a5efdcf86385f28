"""A trace in, its windows out: the span of a ProfilerStep or another annotation, or all of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from et_replay.errors import UsageError
from et_replay.execution_trace import ExecutionTrace

_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")
# 18 digits are more than any id has, and few enough for a number of 64 bits
_ID_RANGE = re.compile(r"(\d{0,18}):(\d{0,18})")
_OCCURRENCE = re.compile(r"(.+)#([1-9]\d{0,17})", re.DOTALL)
_FRAMEWORK = "[pytorch|profiler|"
"""How the observer names the process and the threads, which stand above all other nodes."""

_SHOWN = 12
"""Names that an error lists."""

_ANNOTATION_SCOPE = 7
"""That of what a user, or a library, calls a part of a program."""


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
    ends = [*marks[1:], _ends_of_spans(trace, marks[-1:], len(trace))[marks[-1]]]
    return [Window(trace.names[b], b, e) for b, e in zip(marks, ends, strict=True)]


def select_window(trace: ExecutionTrace, text: str | None = None) -> Window:
    """Pick the window that `text` names; without it the last one that holds an operator, or all.

    `text` is a mark (`ProfilerStep#4`, or just `4`), `first`, `last`, `all`, or node ids
    `FIRST:END` (END not included, may be left out). `WINDOW/ANNOTATION` is a window in one of
    these, or in the default one if WINDOW is empty: what an annotation spans, see `_annotated`.
    Raises UsageError when there is no such window.
    """
    around, slash, annotation = (text or "").partition("/")
    if slash:
        return _annotated(trace, select_window(trace, around or None), annotation)
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
    raise UsageError(
        f"{trace.source} has no window {text!r}; it has {_some([each.name for each in choices])}"
        " (or first, last, all, node ids as 100:200)."
    )


def annotation_spans(trace: ExecutionTrace, window: Window) -> list[Window]:
    """List what the annotations of `window` span, in order, under their names."""
    marks = [
        p
        for p in range(window.begin, window.end)
        if is_annotation(trace, p) and trace.node(p).scope == _ANNOTATION_SCOPE
    ]
    ends = _ends_of_spans(trace, marks, window.end)
    return [Window(trace.names[mark], mark, ends[mark]) for mark in marks]


def is_annotation(trace: ExecutionTrace, position: int) -> bool:
    """Tell whether the node at `position` only names a part of a program."""
    if trace.names[position].startswith(_FRAMEWORK):
        return False
    return not trace.node(position).is_operator


def has_operator(trace: ExecutionTrace, window: Window) -> bool:
    """Tell whether `window` holds anything to replay."""
    return any(trace.node(p).is_operator for p in range(window.begin, window.end))


def _window_of_ids(trace: ExecutionTrace, first: int, end: int | None) -> Window:
    begin = int(np.searchsorted(trace.ids, first))
    stop = len(trace) if end is None else int(np.searchsorted(trace.ids, end))
    name = f"{first}:{'' if end is None else end}"
    if begin >= stop:
        span = f"{trace.ids[0]} to {trace.ids[-1]}" if len(trace) else "none"
        raise UsageError(f"{trace.source} has no node in {name}; its node ids are {span}.")
    return Window(name, begin, stop)


def _annotated(trace: ExecutionTrace, around: Window, text: str) -> Window:
    """Find the window inside of `around` that an annotation spans, like a step from its mark on.

    `text` is its name, for the last of several, or `NAME#k` for the kth, counted from 1. A name
    that itself ends like this goes first.
    """
    places = range(around.begin, around.end)
    found = [p for p in places if trace.names[p] == text and is_annotation(trace, p)]
    k = len(found)
    match = _OCCURRENCE.fullmatch(text)
    if not found and match is not None:
        name, k = match[1], int(match[2])
        found = [p for p in places if trace.names[p] == name and is_annotation(trace, p)]
        if found and k > len(found):
            raise UsageError(
                f"{trace.source} has no {text!r} in window {around.name}: there are {len(found)} of"
                " the name, counted from 1."
            )
    if not found:
        names = _some(list(dict.fromkeys(each.name for each in annotation_spans(trace, around))))
        raise UsageError(
            f"{trace.source} has no annotation {text!r} in window {around.name}; it has {names}."
        )
    begin = found[k - 1]
    end = _ends_of_spans(trace, [begin], around.end)[begin]
    return Window(f"{around.name}/{trace.names[begin]}#{k}", begin, end)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") or "none"


def _ends_of_spans(trace: ExecutionTrace, marks: Sequence[int], limit: int) -> dict[int, int]:
    """Find for each mark the first node of its thread after all that is below the mark.

    Nodes that have lost their parent do not end the span in between, nor behind if they ended
    before the mark did; at `limit` it ends anyway. Where the observer loses the end of a call that
    raised, all that its thread does from there on has lost its parent.
    """
    ends = dict.fromkeys(marks, limit)
    first = min(marks, default=limit)
    below, parents = list(range(limit)), trace.parents[:limit].tolist()
    for position in range(limit - 1, first, -1):
        if first <= parents[position] < position:
            below[parents[position]] = max(below[parents[position]], below[position])
    ended: dict[int, list[int]] = defaultdict(list)
    for mark in marks:
        ended[below[mark]].append(mark)
    waiting: dict[int, list[int]] = {}
    for position in range(first, limit):
        tid = trace.node(position).tid if waiting else 0
        for mark in waiting.pop(tid, ()):
            if trace.places[position] > trace.places[mark]:
                ends[mark] = position
            else:
                waiting.setdefault(tid, []).append(mark)
        for mark in ended.get(position, ()):
            waiting.setdefault(trace.node(mark).tid, []).append(mark)
    return ends
