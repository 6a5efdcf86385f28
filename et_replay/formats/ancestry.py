"""Who called whom: recorded parent ids go in, positions of parents come out."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from et_replay.execution_trace import Node

Positions = npt.NDArray[np.int64]

# the root of a process, or of a thread: the observer makes one whenever a thread's stack is empty
_ROOT = re.compile(r"\[pytorch\|profiler\|execution_(?:trace|graph)\|(?:process|thread)\]")


def is_root(name: str) -> bool:
    """Tell whether a node of this name is the root of a process or of a thread."""
    return _ROOT.fullmatch(name) is not None


def find_parents(
    ids: Positions,
    parent_ids: Positions,
    names: Sequence[str],
    decode: Callable[[int], Node],
) -> tuple[Positions, list[Node]]:
    """Return the position of each node's parent, and the orphaned nodes that are no roots.

    `ids` ascends. A parent is there if its id is, and is smaller: a call begins before the calls
    in it, so nothing can be its own ancestor. An orphan hangs below its thread's last root before
    it; its position is -1 where there is none.
    """
    parents = np.searchsorted(ids, parent_ids)
    found = ids[np.minimum(parents, len(ids) - 1)] == parent_ids
    parents[~found | (parent_ids >= ids)] = -1
    lonely = np.flatnonzero(parents < 0).tolist()
    orphans = [position for position in lonely if not is_root(names[position])]
    if not orphans:
        return parents, []
    roots: dict[int, list[int]] = {}
    of_roots = {name for name in set(names) if is_root(name)}
    for position, name in enumerate(names):
        if name in of_roots:
            roots.setdefault(decode(position).tid, []).append(position)
    nodes = []
    for position in orphans:
        node = decode(position)
        nodes.append(node)
        before = roots.get(node.tid, [])
        index = bisect_left(before, position)
        if index:
            parents[position] = before[index - 1]
    return parents, nodes
