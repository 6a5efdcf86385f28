"""Tables of buffers, the form in which planning instances are exchanged: CSV in, columns out.

    id,lower,upper,size        optionally alignment and offset (one that the buffer must have)
    b1,0,3,4
    b2,3,9,4

A buffer lives in ticks [lower, upper); the size is in bytes. The columns stand in any order, others
are ignored. Two rows of one id are two buffers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from et_replay.buffers import Buffers
from et_replay.errors import TraceError
from et_replay.events import Action, MemoryHistory
from et_replay.formats.event_log import LARGEST, LARGEST_BYTES, EventLog
from et_replay.formats.source import Source

KIND = "table of buffers"

_NEEDED = ("id", "lower", "upper", "size")
_OPTIONAL = {"alignment": 1, "offset": -1}
_LIMITS = {
    "lower": (-LARGEST, LARGEST),
    "upper": (-LARGEST, LARGEST),
    "size": (0, LARGEST_BYTES),
    "alignment": (1, LARGEST_BYTES),
    "offset": (0, LARGEST_BYTES),
}
_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)
_SEPARATORS = ";\t|"


@dataclass(frozen=True, eq=False)
class BufferTable:
    """Buffers with their names; `notes` says in sentences what is missing or was left out.

    `damage` are the sentences for which strict reading refuses the table, one a fault.
    """

    source: str
    names: tuple[str, ...]
    buffers: Buffers
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


def is_buffer_table(head: bytes) -> bool:
    """Tell whether the first line of a file names the columns of such a table."""
    return set(_NEEDED) <= set(_fields(_first_line(head)))


def describe_near_table(head: bytes) -> str:
    """Say what keeps a file from being such a table, as `describe` does; "" where it is far off."""
    line = _first_line(head)
    separator = next((s for s in _SEPARATORS if len(set(_NEEDED) & set(_fields(line, s))) > 1), "")
    if separator:
        return f"is a CSV with {separator!r} between its columns, expected ','"
    fields = _fields(line)
    missing = [name for name in _NEEDED if name not in fields]
    if len(missing) < len(_NEEDED) - 1:
        return f"is a CSV without a column {' and '.join(missing)} in line 1"
    numbers = [field for field in fields if _NUMBER.fullmatch(field)]
    return "is a CSV whose line 1 names no columns" if len(numbers) > 2 else ""


def read_buffer_table(source: Source) -> BufferTable:
    """Read the table; rows that are no buffer are left out, with a note."""
    text = str(source.text, "utf-8", "replace")
    lines = io.StringIO(text.lstrip())
    above = text[: len(text) - len(text.lstrip())].count("\n") + 1
    places = _places(source.name, _fields(lines.readline()))
    rows: list[tuple[int, ...]] = []
    names: list[str] = []
    first: dict[str, int] = {}
    unread: list[str] = []
    repeated: list[str] = []
    for line, cells in _cells(source.name, lines, above):
        try:
            rows.append(_numbers(cells, *places))
        except ValueError as error:
            unread.append(f"line {line}: {error}")
            continue
        name = cells[places[0]["id"]]
        names.append(name)
        if first.setdefault(name, line) != line:
            repeated.append(
                f"The id {name[:80]!r} stands in line {first[name]} and again in line {line}."
            )
    if not rows and unread:
        raise TraceError(
            f"{source.name} holds no buffer; the first row that is none is {unread[0]}."
        )
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5)
    damage = [source.damage] if source.damage else []
    notes = [*damage, *_notes(unread, repeated)]
    damage += [f"In {fault}." for fault in unread] + repeated
    return BufferTable(source.name, tuple(names), _buffers(columns), tuple(notes), tuple(damage))


def buffer_history(table: BufferTable) -> MemoryHistory:
    """Take the table as the events that cause these lifetimes: at one tick, ends come first."""
    buffers, log = table.buffers, EventLog()
    lives = np.flatnonzero((buffers.size > 0) & (buffers.start < buffers.end))
    order = [(int(buffers.end[b]), 0, int(b)) for b in lives]
    order += [(int(buffers.start[b]), 1, int(b)) for b in lives]
    for _, begins, buffer in sorted(order):
        log.add(Action.ALLOC if begins else Action.FREE, buffer, int(buffers.size[buffer]))
    return MemoryHistory(table.source, KIND, log.events(), log.addresses(), notes=table.notes)


def _first_line(head: bytes) -> str:
    return head.lstrip().partition(b"\n")[0].decode("utf-8", "replace")


def _fields(line: str, separator: str = ",") -> list[str]:
    return [cell.strip().strip('"').lower() for cell in line.split(separator)]


def _buffers(columns: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Buffers:
    start, end, size, alignment, offset = columns.T
    return Buffers(start, end, size, alignment, offset)


def _places(name: str, heading: list[str]) -> tuple[dict[str, int], int]:
    """Say where each column stands, and how many there are."""
    for column in (*_NEEDED, *_OPTIONAL):
        if heading.count(column) > 1:
            raise TraceError(
                f"{name} has {heading.count(column)} columns {column}, expected one; which of them"
                " counts is not known."
            )
    known = (column for column in (*_NEEDED, *_OPTIONAL) if column in heading)
    return {column: heading.index(column) for column in known}, len(heading)


def _cells(name: str, lines: io.StringIO, above: int) -> Iterator[tuple[int, list[str]]]:
    """List the rows that are not empty, with the numbers of their lines."""
    reader = csv.reader(lines)
    line = above
    try:
        for cells in reader:
            line, first = above + reader.line_num, line + 1
            if any(cells):
                yield first, cells
    except csv.Error as error:
        raise TraceError(f"{name} is no readable CSV: line {line + 1}: {error}.") from None


def _numbers(cells: list[str], places: dict[str, int], width: int) -> tuple[int, ...]:
    """Read the numbers of a row; raises ValueError with what was expected in which column."""
    if len(cells) < width or any(cells[width:]):
        raise ValueError(f"expected {width} columns, got {len(cells)}")
    numbers = tuple([_number(name, cells, places) for name in _LIMITS])
    lower, upper = numbers[:2]
    if lower > upper:
        raise ValueError(f"expected at least its lower {lower} in the column upper, got {upper}")
    return numbers


def _number(name: str, cells: list[str], places: dict[str, int]) -> int:
    cell = cells[places[name]].strip() if name in places else ""
    if not cell and name in _OPTIONAL:
        return _OPTIONAL[name]
    least, most = _LIMITS[name]
    if len(cell) < 16 and cell.isdecimal() and cell.isascii() and int(cell) >= least:
        return int(cell)  # as nearly all are
    got = f"in the column {name}, got {cell[:40]!r}"
    if _NUMBER.fullmatch(cell) is None:
        raise ValueError(f"expected a whole number {got}")
    if len(cell) > 40 or not least <= int(cell) <= most:
        raise ValueError(f"expected {least} to {most} {got}")
    return int(cell)


def _notes(unread: Sequence[str], repeated: Sequence[str]) -> Iterator[str]:
    if unread:
        yield f"Rows that are no buffer were left out: {len(unread)}, first {unread[0]}."
    if repeated:
        yield f"Rows with the id of another one: {len(repeated)}. {repeated[0]}"
