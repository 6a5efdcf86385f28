"""A memory map in, its events as CSV out: one line each, sizes in bytes."""

from __future__ import annotations

import csv
import io

from et_replay.events import Action
from et_replay.memory_map import MemoryMap
from et_replay.origins import Origin

_HEADING = (
    "event",
    "node_id",
    "action",
    "storage",
    "size_bytes",
    "stream",
    "address",
    "allocated_bytes",
    "reserved_bytes",
    "class",
    "maker",
)
_NOBODY = Origin("")


def event_table(each: MemoryMap) -> str:
    """Write all events with the address of their block, and what was held after them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADING)
    events, timeline, origins = each.history.events, each.timeline, each.history.origins
    columns = (
        events.node_id,
        events.action,
        events.storage,
        events.size,
        events.stream,
        timeline.addresses,
        timeline.allocated,
        timeline.reserved,
    )
    for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        node_id, action, storage, size, stream, address, allocated, reserved = values
        origin = origins.get(storage, _NOBODY)
        writer.writerow(
            (
                row,
                node_id if node_id >= 0 else "",
                Action(action).name.lower(),
                storage,
                size,
                stream,
                hex(address) if address else "",
                allocated,
                reserved,
                origin.memory_class.value if origin.maker else "",
                origin.maker,
            )
        )
    return text.getvalue()
