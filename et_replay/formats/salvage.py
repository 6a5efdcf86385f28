"""Broken files: every node that can still be read, and sentences about what cannot.

    {"schema": ..., "nodes": [  {"id": 2, ...},  {"id": 3, ...},  {"id": 4, "na
    `------- head ------------'  `- region ----'  `- region ---'   `- region -'

The text is cut where a node begins, as the writer begins all of them alike. A region is one node,
else its balanced objects are, else it is lost. Each byte is looked at a fixed number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from et_replay.formats.document import Document
from et_replay.formats.headers import Headers
from et_replay.formats.mending import mend, parse
from et_replay.formats.notes import breaks_off, goes_on

_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"')
# keys that also begin the objects inside a node
_INNER_KEYS = frozenset({b"type", b"value", b"values", b"shapes", b"types", b"strides"})
_NAME_FIRST = re.compile(
    rb'\{\s*"name"\s*:\s*"[^\n{}]*?"\s*,\s*"(?:id|ctrl_deps|inputs|outputs|attrs)"\s*:'
)
# a string that never ends takes the rest
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_END = re.compile(rb'\]((?:\s*,\s*"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[^\s,{}\[\]"]+))*)\s*(\}?)\s*')
_BLANK = b" \t\r\n,"


def salvage(text: memoryview) -> Document:
    """Read what is intact; the document has no node where there is none."""
    return _Salvage(text).document()


class _Salvage:
    """One pass over the regions of a text.

    `_end` is where the list of nodes closes, `_cut` the length of a last node that breaks off.
    """

    def __init__(self, text: memoryview) -> None:
        self._text = text
        self._headers = Headers()
        self._end: int | None = None
        self._cut = 0

    def document(self) -> Document:
        """Read region after region up to the end of the list of nodes."""
        nodes = _NODES.search(self._text)
        for start, stop in _regions(self._text, nodes.end() if nodes else 0):
            if not self._headers.read(self._text[start : self._trimmed(start, stop)]):
                self._read_parts(start, stop)
            if self._end is not None:
                break
        head = bytes(self._text[: nodes.start()]) + b'"nodes":0}' if nodes else b""
        mended = mend(head)
        metadata = mended.fields if mended else {}
        metadata.pop("nodes", None)
        damage = self._finish(metadata)
        return Document(metadata, self._headers, damage)

    def _read_parts(self, start: int, stop: int) -> None:
        """Read the balanced objects of a region that is not one node; count the rest as lost."""
        read = seen = start  # ends of the last object that is a node, and of the last one at all
        for begin, end in _objects(self._text, start, stop):
            if self._ends(seen, begin):
                break
            if self._headers.read(self._text[begin:end]):
                self._lose(read, begin)
                read = end
            seen = end
        if self._end is not None or self._ends(seen, stop):
            self._lose(read, seen)
            return
        rest = bytes(self._text[seen:stop])
        if self._headers.read(rest[max(rest.find(b"{"), 0) :]):
            self._lose(read, seen)
        elif stop == len(self._text):
            self._lose(read, seen)
            self._cut = len(rest.strip(_BLANK))
        else:
            self._lose(read, stop)

    def _ends(self, start: int, stop: int) -> bool:
        """Note where the list of nodes closes, if it does in a gap between nodes.

        A bracket before a comma is no such place: it belongs to a node whose brackets are wrong.
        """
        gap = bytes(self._text[start:stop])
        inner = gap.lstrip(_BLANK)
        closes = inner.startswith(b"]")
        if closes and (stop == len(self._text) or not inner.rstrip().endswith(b",")):
            self._end = start + len(gap) - len(inner)
        return self._end is not None

    def _lose(self, start: int, stop: int) -> None:
        if bytes(self._text[start:stop]).strip(_BLANK + b"[]{}"):
            self._headers.lose(self._text[start:stop])

    def _trimmed(self, start: int, stop: int) -> int:
        while stop > start and self._text[stop - 1] in _BLANK:
            stop -= 1
        return stop

    def _finish(self, metadata: dict[str, Any]) -> str:
        """Read what follows the nodes into `metadata`; say where the file breaks off or goes on."""
        if self._end is None:
            return breaks_off(len(self._headers.ids), self._cut)
        end = _END.match(self._text, self._end)
        assert end is not None  # `_end` is where a bracket is
        metadata.update(parse(b"{%b}" % end[1].strip(_BLANK)) or {})
        rest = len(bytes(self._text[end.end() :]).strip())
        if not end[2]:
            return breaks_off(len(self._headers.ids), rest)
        return goes_on(rest) if rest else ""


def _regions(text: memoryview, begin: int) -> Iterator[tuple[int, int]]:
    """Yield the spans that begin as the first node after `begin` does, and what is before them."""
    previous = begin
    for match in _starts(text, begin):
        if previous > begin or bytes(text[previous : match.start()]).strip():
            yield previous, match.start()
        previous = match.start()
    if previous < len(text):
        yield previous, len(text)


def _starts(text: memoryview, begin: int) -> Iterator[re.Match[bytes]]:
    first = _FIRST_KEY.match(text, begin)
    key = first[1] if first else b"id"
    if key in _INNER_KEYS:
        return iter(())
    if key == b"name" and re.search(rb'"ctrl_deps"\s*:', text):
        return _NAME_FIRST.finditer(text, begin)
    return re.compile(rb'\{\s*"%b"\s*:' % key).finditer(text, begin)


def _objects(text: memoryview, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of the outermost balanced objects."""
    depth, begin = 0, -1
    for match in _STRUCTURE.finditer(text, start, stop):
        token = match[0]
        if token in (b"{", b"["):
            if depth == 0:
                begin = match.start() if token == b"{" else -1
            depth += 1
        elif token in (b"}", b"]") and depth:
            depth -= 1
            if depth == 0 and begin >= 0:
                yield begin, match.end()
