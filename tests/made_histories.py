"""Memory histories by hand, and from the one-line programs of the recorded public reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from et_replay.events import Action, AllocationEvents, MemoryHistory, SegmentState, pool_number
from et_replay.explain import Explanation, explain
from et_replay.origins import Origin

Row = Sequence[int]
"""Action, storage and size, perhaps stream and node id; stream 0 and no node where they lack."""


def events(*rows: Row) -> AllocationEvents:
    full = [(*row, *(0, -1)[len(row) - 3 :]) for row in rows]
    table = np.array(full, dtype=np.int64).reshape(len(rows), 5)
    storage, size, stream, node = (np.ascontiguousarray(table[:, c]) for c in range(1, 5))
    return AllocationEvents(
        table[:, 0].astype(np.int8), storage, size, stream, node, np.zeros(0, dtype=np.int64)
    )


def history(
    *rows: Row,
    segments: tuple[SegmentState, ...] = (),
    origins: Mapping[int, Origin] | None = None,
    settings: str = "",
    class_rule: str = "",
    device_addresses: Sequence[int] = (),
    device_memory: int | None = None,
) -> MemoryHistory:
    return MemoryHistory(
        source="by hand",
        kind="recorded streams",
        events=events(*rows),
        addresses=np.zeros(len(rows), dtype=np.int64),
        segments=segments,
        device_addresses=tuple(device_addresses),
        device_memory=device_memory,
        settings=settings,
        origins=origins or {},
        class_rule=class_rule,
    )


def explained(made: MemoryHistory, capacity: int, allocator: str = "native") -> Explanation:
    """Return the explanation of a failure, which there must be."""
    explanation = explain(made, allocator, capacity)
    assert explanation is not None
    return explanation


def of_report(report: Mapping[str, Any]) -> tuple[MemoryHistory, int]:
    """Return a public report's stream, and what PyTorch could get of its device."""
    rows: list[Row] = []
    made: dict[int, tuple[int, int]] = {}
    capacity = report["device_total"]
    for line in report["program"]:
        verb, *words = line.split()
        numbers = [int(word) for word in words]
        if verb == "a":
            storage, size, stream = numbers
            made[storage] = size, stream
            rows.append((Action.ALLOC, storage, size, stream))
        elif verb == "f":
            rows.append((Action.FREE, numbers[0], *made[numbers[0]]))
        elif verb == "begin":
            rows.append((Action.POOL_BEGIN, pool_number((numbers[0], numbers[1])), 0, -1))
        elif verb == "end":
            rows.append((Action.POOL_END, pool_number((numbers[0], numbers[1])), 0, -1))
        elif verb == "ext":
            capacity -= numbers[0]
        else:
            assert verb == "pool", line  # named before it is used: the events need no such row
    return history(*rows), capacity
