"""The text of a whole trace, cut into the texts of its nodes: fast where it is valid JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from et_replay.formats.headers import Headers


@dataclass(frozen=True)
class Document:
    """A file's nodes, and what stands beside them: schema, pid, start_ts ...

    `damage` is a sentence about a file that breaks off, or goes on after its end; `notes` are about
    what the format leaves out.
    """

    metadata: dict[str, Any]
    headers: Headers
    damage: str = ""
    notes: tuple[str, ...] = ()


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW = msgspec.json.Decoder(msgspec.Raw)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def read_document(text: memoryview) -> Document | None:
    """Read a valid file; None where it has no list of nodes.

    Raises DecodeError where it is no JSON, RecursionError where it nests too deeply.
    """
    try:
        content = _OBJECT.decode(text)
        nodes = _LIST.decode(content.pop("nodes", b"null"))
    except msgspec.ValidationError:
        _RAW.decode(text)  # the type is wrong; is it JSON at all?
        return None
    headers = Headers()
    read = headers.read
    for node in nodes:
        if not read(node):
            headers.lose(node)
    return Document({key: _decoded(value) for key, value in content.items()}, headers)


def _decoded(value: msgspec.Raw) -> Any:
    """Decode what stands beside the nodes; the local time may hold bytes that are not UTF-8."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return bytes(value).decode(errors="replace").strip('"')
