"""Kineto traces of the PyTorch profiler, recorded with `profile_memory`: JSON in, a history out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from et_replay.errors import TraceError
from et_replay.events import MemoryHistory
from et_replay.formats.event_log import LARGEST, LARGEST_BYTES, PointerLog
from et_replay.formats.source import Source
from et_replay.units import counted, format_bytes

KIND = "Kineto trace"

_MEMORY, _OUT_OF_MEMORY = "[memory]", "[OutOfMemory]"
_CPU = 0  # of c10::DeviceType; every other type has a caching allocator
_EVENT = re.compile(
    rb'\{[^{}]{0,999}"name"\s{0,9}:\s{0,9}"\[(?:memory|OutOfMemory)\]"[^{}]{0,999}'
    rb'"args"\s{0,9}:\s{0,9}\{[^{}]{0,999}\}[^{}]{0,999}\}'
)


class _Event(msgspec.Struct):
    name: Any = None
    ts: Any = None
    args: msgspec.Raw = msgspec.Raw(b"null")


class _Trace(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815  # the name in the file


class _Row(NamedTuple):
    """A memory event; `size` is negative for a free, `order` the time and the profiler's count."""

    order: tuple[float, int]
    device: tuple[int, int]  # type, and number
    failed: bool
    address: int
    size: int
    allocated: int
    reserved: int


def read_kineto(source: Source, device: int | None = None) -> MemoryHistory:
    """Read the memory events of one device: by default that with the most, CPUs last."""
    notes = [*filter(None, [source.damage])]
    rows = [row for event in _events(source, notes) for row in _rows(event)]
    if not rows:
        raise TraceError(
            f"{source.name} is a Kineto trace without memory events; record it with"
            " profile_memory=True."
        )
    chosen = _choose(source, rows, device, notes)
    rows = sorted(row for row in rows if row.device == chosen)
    log = PointerLog()
    for row in rows:
        if row.failed:
            log.fail(row.size, 0)
        elif row.size < 0:
            log.free(row.address, -row.size, 0)
        else:
            log.allocate(row.address, row.size, 0)
    rows_out = log.finish()
    return MemoryHistory(
        source=source.name,
        kind=KIND,
        events=rows_out.events(),
        addresses=rows_out.addresses(),
        notes=(*notes, *log.notes(), *_notes(rows)),
    )


def _events(source: Source, notes: list[str]) -> Iterator[msgspec.Raw | bytes]:
    """Yield the texts of what can be memory events; of a broken file, those that are whole."""
    try:
        yield from msgspec.json.decode(source.text, type=_Trace).traceEvents
    except (msgspec.DecodeError, RecursionError):
        found = [match[0] for match in _EVENT.finditer(source.text)]
        notes.append(
            f"The file is no valid JSON: {counted(len(found), 'memory event')} could be read in it."
        )
        yield from found


def _rows(text: msgspec.Raw | bytes) -> Iterator[_Row]:
    """Yield the memory event that `text` is, if it is one."""
    try:
        event = msgspec.json.decode(text, type=_Event)
        if event.name not in (_MEMORY, _OUT_OF_MEMORY):
            return
        fields = msgspec.json.decode(event.args, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, TypeError):
        return
    kind, number, address = (
        _integer(fields.get(name)) for name in ("Device Type", "Device Id", "Addr")
    )
    size, allocated, reserved = (
        _integer(fields.get(name), LARGEST_BYTES)
        for name in ("Bytes", "Total Allocated", "Total Reserved")
    )
    time, count = event.ts, _integer(fields.get("Ev Idx"))
    order = (float(time) if isinstance(time, (int, float)) else 0.0, count)
    failed = event.name == _OUT_OF_MEMORY
    yield _Row(order, (kind, number), failed, address, size, allocated, reserved)


def _integer(value: Any, most: int = LARGEST) -> int:
    """Return a number of an event; some versions write them as text."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if abs(number) <= most else 0


def _choose(
    source: Source, rows: list[_Row], wanted: int | None, notes: list[str]
) -> tuple[int, int]:
    counts = Counter(row.device for row in rows)
    devices = sorted(counts, key=lambda device: (device[0] == _CPU, -counts[device], device))
    if wanted is not None:
        devices = [device for device in devices if device[0] != _CPU and device[1] == wanted]
        if not devices:
            raise TraceError(f"{source.name} has no memory events of device {wanted}.")
        return devices[0]
    others = sorted({number for kind, number in devices[1:] if kind != _CPU})
    if devices[0][0] == _CPU:
        notes.append("The trace has memory events of the CPU only.")
    elif others:
        shown = ", ".join(map(str, others))
        notes.append(f"Device {devices[0][1]} was read; the trace also has device {shown}.")
    return devices[0]


def _notes(rows: list[_Row]) -> list[str]:
    """Say what a profiler does not record."""
    notes = ["Sizes are those of blocks, as rounded; all streams count as one."]
    before = rows[0].allocated - (0 if rows[0].failed else rows[0].size)
    if before > 0:
        notes.append(f"Allocated before it began: {format_bytes(before)}.")
    reserved = max(row.reserved for row in rows)
    if reserved > 0:
        notes.append(f"Recorded peak reserved: {format_bytes(reserved)}.")
    return notes
