"""Memory maps in; a line of figures for each, or their JSON objects, out."""

from __future__ import annotations

from collections.abc import Sequence

from et_replay.memory_map import MemoryMap
from et_replay.report.document import JsonObject, failure_object
from et_replay.report.table import table
from et_replay.units import format_bytes

_HEADING = ("allocator", "blocks", "peak allocated", "at event", "peak reserved", "failures")


def timeline_text(maps: Sequence[MemoryMap]) -> str:
    """Write what the pictures show, in figures."""
    rows = [
        (
            each.allocator,
            str(len(each.blocks)),
            format_bytes(each.peak_allocated),
            str(each.peak_row) if each.peak_row >= 0 else "before the first",
            format_bytes(each.peak_reserved),
            str(len(each.failures)),
        )
        for each in maps
    ]
    return table(_HEADING, rows, right=_HEADING[1:])


def timeline_objects(maps: Sequence[MemoryMap], output: str) -> list[JsonObject]:
    """Give every map its JSON form."""
    return [
        {
            "input": each.history.source,
            "allocator": each.allocator,
            "torch_version": each.torch_version,
            "device_memory_bytes": each.capacity,
            "memory_fraction": each.fraction,
            "events": len(each.history.events),
            "blocks": len(each.blocks),
            "segments": len(each.segments),
            "peak_event": each.peak_row,
            "peak_allocated_bytes": each.peak_allocated,
            "peak_reserved_bytes": each.peak_reserved,
            "failures": [{"event": f.event, **failure_object(f)} for f in each.failures],
            "output": output,
        }
        for each in maps
    ]
