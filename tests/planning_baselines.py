"""First fit in a fixed order, the plain way: what a planner has to beat."""

from __future__ import annotations

import numpy as np
from planning_instances import Instance

from et_replay.events import Int64Array


def first_fit_by_size(instance: Instance) -> Int64Array:
    """Place the largest first, of equal ones that which starts first, each as low as it goes."""
    return _first_fit(instance, np.lexsort((instance.start, -instance.size)))


def first_fit_by_start(instance: Instance) -> Int64Array:
    """Place in the order of birth, as an allocator without foresight does, each as low as it goes.

    Of those that start at the same tick the one that ends last goes first.
    """
    return _first_fit(instance, np.lexsort((-instance.end, instance.start)))


def arena_of(instance: Instance, offsets: Int64Array) -> int:
    """Return the end of the highest buffer."""
    return int((offsets + instance.size).max(initial=0))


def _first_fit(instance: Instance, order: Int64Array) -> Int64Array:
    start, end, size = (column[order] for column in instance)
    offsets = np.zeros(len(order), dtype=np.int64)
    for row in range(len(order)):
        meets = np.flatnonzero((start[:row] < end[row]) & (end[:row] > start[row]))
        by_offset = meets[np.argsort(offsets[meets])]
        begins = offsets[by_offset]
        tops = np.maximum.accumulate(begins + size[by_offset])
        floors = np.concatenate([np.zeros(1, np.int64), tops])
        fits = np.flatnonzero(begins - floors[:-1] >= size[row])
        offsets[row] = floors[fits[0]] if len(fits) else floors[-1]
    restored = np.empty_like(offsets)
    restored[order] = offsets
    return restored
