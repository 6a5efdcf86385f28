"""One node that does not read as it stands: its text goes in, text that reads comes out.

The observer writes names without escaping them, numbers as bare `nan` and `inf`, and whatever bytes
the process had. Each repair is tried only where its fault is seen.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

NodeText: TypeAlias = "msgspec.Raw | memoryview | bytes"

# kinds of repair
NAME = "name"
NUMBER = "number"
ENCODING = "encoding"
FIELD = "field"

# where a node's name begins, and what the observer writes after it in either layout
_NAME_BEGINS = re.compile(rb'\s*\{[^{}\[\]]*?"name"\s*:\s*"')
_NAME_ENDS = re.compile(rb'"\s*,\s*"(?:ctrl_deps|id|inputs)"\s*:')
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
_STRING_OR_WORD = re.compile(_STRING + rb"|-?\b(?:nan|inf(?:inity)?)\b", re.DOTALL | re.IGNORECASE)
_ESCAPE_OR_CONTROL = re.compile(rb"\\u[0-9a-fA-F]{4}|\\.|[\x00-\x1f]", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Mended:
    """A node that reads now, and the kinds of repair that this took."""

    text: bytes
    fields: dict[str, Any]
    repairs: tuple[str, ...]


def mend(node: NodeText) -> Mended | None:
    """Repair a node's text; None where no JSON object comes of it."""
    text = bytes(node).strip(b" \t\r\n,")
    repairs: list[str] = []
    for kind, repair in ((ENCODING, _as_utf8), (NAME, _escape_name), (NUMBER, _quote_numbers)):
        fields = parse(text)
        if fields is not None:
            break
        repaired = repair(text)
        if repaired != text:
            repairs.append(kind)
            text = repaired
    else:
        fields = parse(text) or _parse_leniently(text)
    return None if fields is None else Mended(text, fields, tuple(repairs))


def parse(text: NodeText) -> dict[str, Any] | None:
    """Decode a JSON object; None for anything else."""
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _parse_leniently(text: bytes) -> dict[str, Any] | None:
    """Decode an object with numbers that are out of range."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _as_utf8(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()


def _escape_name(text: bytes) -> bytes:
    begins = _NAME_BEGINS.match(text)
    ends = _NAME_ENDS.search(text, begins.end()) if begins else None
    if begins is None or ends is None:
        return text
    name = text[begins.end() : ends.start()]
    try:
        msgspec.json.decode(b'"%b"' % name, type=str)
    except msgspec.DecodeError:
        name = msgspec.json.encode(name.decode(errors="replace"))[1:-1]
    return text[: begins.end()] + name + text[ends.start() :]


def _quote_numbers(text: bytes) -> bytes:
    """Write bare `nan` and `inf` as the observer's own strings, and make every string valid."""
    return _STRING_OR_WORD.sub(_spell, text)


def _spell(match: re.Match[bytes]) -> bytes:
    token = match[0]
    if token.startswith(b'"'):
        return _ESCAPE_OR_CONTROL.sub(_escape, token)
    sign = b"-" if token.startswith(b"-") else b""
    return b'"%b%b"' % (sign, token[len(sign) :][:3].lower())


def _escape(match: re.Match[bytes]) -> bytes:
    token = match[0]
    if _SURROGATE.match(token):
        return b"\\ufffd"
    if len(token) == 6 or (token[1:] in b'"\\/bfnrt' and len(token) == 2):
        return token
    return b"\\u%04x" % token[0] if len(token) == 1 else b"\\" + token
