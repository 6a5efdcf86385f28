"""STAlloc's `mem_log_devN.txt`, the log of its pluggable allocator: lines in, a history out.

    Iteration Index : 0
    1 0x7f1e41329c00 4096 0            allocated: pointer, bytes, stream
    0 0x7f1e41329c00 4096 0            freed

The other lines name iterations, micro-batches and layers.
"""

from __future__ import annotations

import re

from et_replay.errors import TraceError
from et_replay.events import MemoryHistory
from et_replay.formats.event_log import LARGEST, LARGEST_BYTES, PointerLog, lines_left_out
from et_replay.formats.source import Source

KIND = "STAlloc log"

_POINTER = rb"(0x[0-9a-fA-F]{1,16}|0|\(nil\))"
_LINE = re.compile(rb"([01]) +%b +(\d{1,19}) +%b\s*" % (_POINTER, _POINTER))
_MARKER = re.compile(rb"[^\n]*(?:Iteration Index|micro-batch|Layer)[^\n]*")


def is_stalloc_log(head: bytes) -> bool:
    """Tell whether the first lines of a file are such a log's."""
    for line in head.splitlines()[:1000]:
        if _LINE.fullmatch(line):
            return True
        if line.strip() and not _MARKER.fullmatch(line):
            return False
    return False


def read_stalloc_log(source: Source) -> MemoryHistory:
    """Read the log of one device."""
    log, unread, any_line = PointerLog(), [], False
    for number, line in enumerate(bytes(source.text).splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            if line.strip() and not _MARKER.fullmatch(line):
                unread.append(number)
            continue
        size, any_line = int(match[3]), True
        address, stream = pointer(match[2]), pointer(match[4])
        if size > LARGEST_BYTES or max(address, stream) > LARGEST:
            unread.append(number)
        elif match[1] == b"1":
            log.allocate(address, size, stream)
        else:
            log.free(address, size, stream)
    if not any_line:
        raise TraceError(f"{source.name} is a log of STAlloc without an allocation.")
    rows = log.finish()
    notes = [*filter(None, [source.damage]), *log.notes()]
    notes += lines_left_out(unread)
    return MemoryHistory(source.name, KIND, rows.events(), rows.addresses(), notes=tuple(notes))


def pointer(text: bytes) -> int:
    """Read a pointer as C++ and C print it."""
    return 0 if text in (b"0", b"(nil)") else int(text, 16)
