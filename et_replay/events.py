"""Allocation events as columns: the form of all memory history, and what allocators are fed.

Sizes are bytes, times nanoseconds, intervals half-open [start, end).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


class Action(enum.IntEnum):
    """What an event does; the values are those of the `action` column."""

    ALLOC = 0
    FREE = 1


@dataclass(frozen=True, eq=False)
class AllocationEvents:
    """Events in order, one row each; all columns have the same length.

    `storage` names the allocation: a FREE ends the ALLOC of the same storage. `size` is the bytes
    asked for, repeated on the FREE. `node_id` is the node that makes the storage, or on a FREE the
    last one that shows it; -1 before the first node. `steps[i]` is the first event of operation i,
    `steps[-1]` the end of the last one: events before `steps[0]` prepare the first iteration.
    Sources without operations leave `steps` empty.
    """

    action: npt.NDArray[np.int8]
    storage: Int64Array
    size: Int64Array
    stream: Int64Array
    node_id: Int64Array
    steps: Int64Array

    def __len__(self) -> int:
        return len(self.action)
