"""The CSV of RMM's logging adaptor: its rows in, a history out.

    Thread,Time,Action,Pointer,Size,Stream
    1979932,14:21:19.998533,allocate,0x30a000000,256,0x2
    1979932,14:21:32.661875,free,0x30a000000,256,0x2

The action is allocate, free (deallocate in its documentation) or allocate failure.
"""

from __future__ import annotations

import re

from et_replay.errors import TraceError
from et_replay.events import MemoryHistory
from et_replay.formats.event_log import LARGEST, LARGEST_BYTES, PointerLog, lines_left_out
from et_replay.formats.source import Source

KIND = "RMM log"

_HEADER = b"Thread,Time,Action,Pointer,Size,Stream"
_POINTER = rb"(0x[0-9a-fA-F]{1,16}|\d{1,19}|\(nil\)|)"
_ROW = re.compile(
    rb"\s*(\d+),([^,]*),(allocate|free|deallocate|allocate failure),%b,(\d{1,19}),%b\s*"
    % (_POINTER, _POINTER)
)


def is_rmm_log(head: bytes) -> bool:
    """Tell whether the first line of a file is the header of such a log, or a row of it."""
    first = head.lstrip().partition(b"\n")[0].strip()
    return first == _HEADER or _ROW.fullmatch(first) is not None


def read_rmm_log(source: Source) -> MemoryHistory:
    """Read the log; rows of several threads are taken in the order in which they stand."""
    log, threads, unread = PointerLog(), set(), []
    for number, line in enumerate(bytes(source.text).splitlines(), 1):
        match = _ROW.fullmatch(line)
        if match is None:
            if line.strip() not in (b"", _HEADER):
                unread.append(number)
            continue
        thread, _, action, address, size, stream = match.groups()
        threads.add(thread)
        numbers = _pointer(address), int(size), _pointer(stream)
        if numbers[1] > LARGEST_BYTES or max(numbers) > LARGEST:
            unread.append(number)
        elif action == b"allocate":
            log.allocate(*numbers)
        elif action == b"allocate failure":
            log.fail(*numbers[1:])
        else:
            log.free(*numbers)
    if not threads:
        raise TraceError(f"{source.name} is a log of RMM without an allocation.")
    rows = log.finish()
    notes = [*filter(None, [source.damage]), *log.notes()]
    if len(threads) > 1:
        notes.append(f"Events of {len(threads)} threads were taken in the order of the log.")
    notes += lines_left_out(unread)
    return MemoryHistory(source.name, KIND, rows.events(), rows.addresses(), notes=tuple(notes))


def _pointer(text: bytes) -> int:
    if text in (b"", b"(nil)"):
        return 0
    return int(text, 16 if text.startswith(b"0x") else 10)
