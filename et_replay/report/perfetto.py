"""A memory map in; a trace for Perfetto, and chrome://tracing, out: counters and operations."""

from __future__ import annotations

import json
from collections.abc import Iterator

from et_replay.memory_map import MemoryMap
from et_replay.report.document import JsonObject

_PROCESS = 1
_OPERATIONS = 1


def perfetto_trace(each: MemoryMap) -> str:
    """Write the trace in the JSON of Chrome's trace events; an event takes a microsecond."""
    events = [_name(each), *_counters(each), *_operations(each), *_failures(each)]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}) + "\n"


def _name(each: MemoryMap) -> JsonObject:
    name = f"{each.history.source}, {each.allocator}; an event is shown as 1 us"
    return {"ph": "M", "pid": _PROCESS, "name": "process_name", "args": {"name": name}}


def _counters(each: MemoryMap) -> Iterator[JsonObject]:
    """Yield the counters where they change."""
    before = None
    columns = each.timeline.allocated.tolist(), each.timeline.reserved.tolist()
    for row, held in enumerate(zip(*columns, strict=True)):
        if held != before:
            values = {"allocated": held[0], "reserved but unallocated": held[1] - held[0]}
            yield {"ph": "C", "pid": _PROCESS, "ts": row, "name": "bytes", "args": values}
        before = held


def _operations(each: MemoryMap) -> Iterator[JsonObject]:
    steps = each.history.events.steps.tolist()
    for name, begin, end in zip(each.history.operations, steps, steps[1:], strict=False):
        yield {
            "ph": "X",
            "pid": _PROCESS,
            "tid": _OPERATIONS,
            "ts": begin,
            "dur": end - begin,
            "name": name,
        }


def _failures(each: MemoryMap) -> Iterator[JsonObject]:
    for failure in each.failures:
        yield {
            "ph": "i",
            "s": "g",
            "pid": _PROCESS,
            "tid": _OPERATIONS,
            "ts": failure.event,
            "name": "out of memory",
            "args": {"message": str(failure)},
        }
