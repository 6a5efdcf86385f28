"""The nodes of a trace with gloo's work in, the true parents and what gloo itself ran out.

Work that gloo does ends on a thread of gloo's, but is recorded as a call (`gloo:all_reduce`) of the
thread that asked for it. PyTorch's observer takes the innermost call off a thread's stack when one
ends, whichever that was: with work under way, calls get parents that ended before, or do not call
them. But the observer writes a node when its call has ended, so the places of nodes in the file
tell what enclosed what. Operators that gloo's threads run are parts of collectives, not of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from et_replay.execution_trace import Node, tensors
from et_replay.formats.ancestry import is_root

_WORK = "gloo:"


class Uncrossed(NamedTuple):
    """The true parent ids, how many were others, and the positions of what gloo's threads ran."""

    parent_ids: list[int]
    mended: int
    workers: list[int]


def has_work(names: Sequence[str]) -> bool:
    """Tell whether any node is work of gloo."""
    return any(name.startswith(_WORK) for name in names)


def uncross(nodes: Sequence[Node], places: npt.NDArray[np.int64]) -> Uncrossed:
    """Find out who called whom on threads that had gloo do work; `nodes` ascend by id."""
    callers = {node.tid for node in nodes if _is_work(node)}
    calls = [
        position
        for position, node in enumerate(nodes)
        if node.tid in callers and not is_root(node.name)
    ]
    workers = _workers(nodes, callers)
    if bool(np.all(np.diff(places[calls]) > 0)):  # sorted by something else, so the ends are lost
        return Uncrossed([node.parent for node in nodes], 0, workers)
    parent_ids = _enclosing(nodes, places.tolist(), callers)
    mended = sum(
        node.parent != parent_id and not _is_work(node)
        for node, parent_id in zip(nodes, parent_ids, strict=True)
    )
    return Uncrossed(parent_ids, mended, workers)


def _is_work(node: Node) -> bool:
    return node.name.startswith(_WORK)


def _enclosing(nodes: Sequence[Node], places: list[int], callers: set[int]) -> list[int]:
    """Return for each node the id of the innermost call that began before and ended after it."""
    threads = {node.id: node.tid for node in nodes if not is_root(node.name)}
    running: dict[int, list[int]] = {tid: [] for tid in callers}
    roots: dict[int, int] = {}
    parent_ids = []
    for position, node in enumerate(nodes):
        parent, end = node.parent, places[position]
        if is_root(node.name):
            roots[node.tid] = node.id
        elif node.tid in callers:
            calls = running[node.tid]
            if not _is_work(node):  # which tells nothing of the calls that it crosses
                while calls and places[calls[-1]] < end:
                    calls.pop()
            above = next((call for call in reversed(calls) if places[call] > end), None)
            if above is not None:
                parent = nodes[above].id
            elif threads.get(parent) == node.tid:
                parent = roots.get(node.tid, parent)
            if not _is_work(node):
                calls.append(position)
        parent_ids.append(parent)
    return parent_ids


def _workers(nodes: Sequence[Node], callers: set[int]) -> list[int]:
    """Find the threads that begin with a tensor that gloo was given, and do nothing but operators.

    Returns the positions of all that they ran.
    """
    given: set[tuple[str, int]] = set()
    works: dict[int, bool] = {}
    for node in nodes:
        if _is_work(node):
            given |= _storages(node)
        elif node.tid not in callers and not is_root(node.name):
            if not node.is_operator or node.is_collective:
                works[node.tid] = False
            elif node.tid not in works:
                works[node.tid] = not given.isdisjoint(_storages(node))
    return [position for position, node in enumerate(nodes) if works.get(node.tid, False)]


def _storages(node: Node) -> set[tuple[str, int]]:
    return {(tensor.device, tensor.storage_id) for tensor in tensors(node.inputs)}
