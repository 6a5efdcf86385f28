"""Segments in; heights for addresses, without what was never reserved, out."""

from __future__ import annotations

import numpy as np

from et_replay.events import Int64Array
from et_replay.memory_map import Segments


class Heights:
    """Addresses with all taken out of them that lies between ranges which were ever reserved.

    Range i begins at `address[i]`, is `size[i]` bytes long, and begins at height `y[i]`.
    """

    def __init__(self, segments: Segments) -> None:
        order = np.argsort(segments.address, kind="stable")
        begin = segments.address[order]
        end = np.maximum.accumulate(begin + segments.size[order])
        first = np.flatnonzero(np.append(True, begin[1:] > end[:-1])[: len(begin)])
        last = np.append(first[1:] - 1, len(begin) - 1)[: len(first)]
        self.address: Int64Array = begin[first]
        self.size: Int64Array = end[last] - begin[first]
        self.y: Int64Array = np.cumsum(self.size) - self.size

    @property
    def top(self) -> int:
        """Bytes of all ranges together."""
        return int(self.size.sum())

    def of(self, address: Int64Array) -> Int64Array:
        """Return the height of each address."""
        if not len(self.address):
            return address
        at = np.searchsorted(self.address, address, side="right") - 1
        heights: Int64Array = self.y[at] + address - self.address[at]
        return heights
