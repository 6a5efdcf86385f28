"""Tables of buffers, the form in which planning instances are exchanged: CSV in, columns out.

    id,lower,upper,size        optionally alignment and offset (one that the buffer must have)
    b1,0,3,4
    b2,3,9,4

A buffer lives in ticks [lower, upper); the size is in bytes. The columns stand in any order, others
are ignored.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from et_replay.buffers import Buffers
from et_replay.errors import TraceError
from et_replay.events import Action, MemoryHistory
from et_replay.formats.event_log import LARGEST, EventLog
from et_replay.formats.source import Source

KIND = "table of buffers"

_NEEDED = ("id", "lower", "upper", "size")
_OPTIONAL = {"alignment": 1, "offset": -1}


@dataclass(frozen=True, eq=False)
class BufferTable:
    """Buffers with their names; `notes` says in sentences what is missing or was left out."""

    source: str
    names: tuple[str, ...]
    buffers: Buffers
    notes: tuple[str, ...] = ()


def is_buffer_table(head: bytes) -> bool:
    """Tell whether the first line of a file names the columns of such a table."""
    first = head.lstrip().partition(b"\n")[0].decode("utf-8", "replace")
    return set(_NEEDED) <= set(_fields(first))


def read_buffer_table(source: Source) -> BufferTable:
    """Read the table; rows that are no buffer are left out, with a note."""
    lines = io.StringIO(str(source.text, "utf-8", "replace").lstrip())
    heading = _fields(lines.readline())
    places = {name: heading.index(name) for name in (*_NEEDED, *_OPTIONAL) if name in heading}
    names: list[str] = []
    rows: list[tuple[int, ...]] = []
    unread: list[str] = []
    for number, cells in enumerate(csv.reader(lines), 2):
        if not any(cells):
            continue
        try:
            rows.append(tuple(_numbers(cells, places)))
            names.append(cells[places["id"]])
        except (ValueError, IndexError):
            unread.append(f"line {number} ({','.join(cells)[:80]})")
    if not rows and unread:
        raise TraceError(f"{source.name} holds no buffer; the first row that is none: {unread[0]}.")
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5)
    notes = [source.damage] if source.damage else []
    if unread:
        notes.append(f"Rows that are no buffer were left out: {len(unread)}, first {unread[0]}.")
    start, end, size, alignment, offset = columns.T
    return BufferTable(
        source.name, tuple(names), Buffers(start, end, size, alignment, offset), tuple(notes)
    )


def read_buffer_history(source: Source) -> MemoryHistory:
    """Read the table as the events that cause these lifetimes: at one tick, ends come first."""
    table = read_buffer_table(source)
    buffers, log = table.buffers, EventLog()
    lives = np.flatnonzero((buffers.size > 0) & (buffers.start < buffers.end))
    order = [(int(buffers.end[b]), 0, int(b)) for b in lives]
    order += [(int(buffers.start[b]), 1, int(b)) for b in lives]
    for _, begins, buffer in sorted(order):
        log.add(Action.ALLOC if begins else Action.FREE, buffer, int(buffers.size[buffer]))
    return MemoryHistory(source.name, KIND, log.events(), log.addresses(), notes=table.notes)


def _fields(line: str) -> list[str]:
    return [cell.strip().strip('"').lower() for cell in line.split(",")]


def _numbers(cells: list[str], places: dict[str, int]) -> Iterator[int]:
    for name in (*_NEEDED[1:], *_OPTIONAL):
        cell = cells[places[name]].strip() if name in places else ""
        value = int(cell) if cell or name in _NEEDED else _OPTIONAL[name]
        if not (-LARGEST <= value <= LARGEST) or (name == "size" and value < 0):
            raise ValueError
        yield value
