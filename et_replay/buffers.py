"""Buffers as columns: what is to be given an address, and when it lives.

Sizes and offsets are bytes, times are ticks of any length, intervals half-open [start, end).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from et_replay.events import Int64Array

_Numbers = Sequence[int] | npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False, init=False)
class Buffers:
    """Buffers, one row each; all columns have the same length.

    `offset` is an offset that a buffer must have, -1 where it is free to choose. A buffer lives in
    [start, end), and at the same offset once more in [again_start, again_end) unless that is empty:
    where it crosses the end of a cycle.
    """

    start: Int64Array
    end: Int64Array
    size: Int64Array
    alignment: Int64Array
    offset: Int64Array
    again_start: Int64Array
    again_end: Int64Array

    def __init__(
        self,
        start: _Numbers,
        end: _Numbers,
        size: _Numbers,
        alignment: _Numbers | None = None,
        offset: _Numbers | None = None,
        again_start: _Numbers | None = None,
        again_end: _Numbers | None = None,
    ) -> None:
        """Take columns; of those left out the alignment is 1, the offset free, the rest empty."""
        rows = len(start)
        columns = {
            "start": _column(start),
            "end": _column(end),
            "size": _column(size),
            "alignment": _column(alignment, rows, 1),
            "offset": _column(offset, rows, -1),
            "again_start": _column(again_start, rows),
            "again_end": _column(again_end, rows),
        }
        for name, column in columns.items():
            if len(column) != rows:
                raise ValueError(f"Expected {rows} rows in the column {name}, got {len(column)}.")
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.size)


def _column(values: _Numbers | None, rows: int = 0, otherwise: int = 0) -> Int64Array:
    if values is None:
        return np.full(rows, otherwise, dtype=np.int64)
    return np.ascontiguousarray(values, dtype=np.int64)
