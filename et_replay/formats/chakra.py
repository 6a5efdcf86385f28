"""Chakra's protobuf files (.et): bytes in, their nodes in the layout of PyTorch's JSON files out.

    length, GlobalMetadata {version, attr}
    length, Node {id, name, type, ctrl_deps, data_deps, ..., inputs, outputs, attr}
    length, Node ...

Lengths are varints. What chakra_converter makes of a PyTorch trace has PyTorch's calls in it: their
attributes, and their columns of values as the text of Python lists. What a generator makes has
none: its nodes become labels.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from et_replay.errors import TraceError
from et_replay.execution_trace import DAMAGED
from et_replay.formats.document import Document
from et_replay.formats.headers import Headers
from et_replay.formats.notes import breaks_off, of_chakra
from et_replay.formats.source import Source

if TYPE_CHECKING:
    from et_replay.formats.chakra_messages import Messages

_KINDS = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
# the first byte of each field: eight times its number, and how it is written (0 varint, 2 bytes)
_OF_METADATA = frozenset({8 * 1 + 2, 8 * 2 + 2})
_OF_NODES = frozenset(
    {8 * number for number in (1, 3, 4, 5, 6, 7)}
    | {8 * number + 2 for number in (2, 4, 5, 8, 9, 10)}
)
_BYTES = 2
_COLUMNS = ("values", "shapes", "types")
_UNREADABLE = {"values": [""], "types": [DAMAGED + "list"]}
# words in the place of a value: of Python's floats, which PyTorch writes as strings, and of JSON
_WORDS = {"nan": "nan", "inf": "inf", "true": True, "false": False, "null": None}
_SHORT = 200  # characters up to which a list is worth remembering: shapes and types repeat


def is_chakra(text: memoryview) -> bool:
    """Tell whether a file begins with the fields of metadata, and goes on with those of a node.

    Only the numbers of fields and the way in which they are written are looked at.
    """
    messages = _messages(text)
    begin, end = next(messages, (0, 0))
    if begin == 0 or not _has_fields(text[begin:end], _OF_METADATA):
        return False
    following, last = next(messages, (end, end))
    holds_something = begin < end or following < last  # a file of zeros is none
    return holds_something and _has_fields(text[following:last], _OF_NODES)


def read_chakra(source: Source) -> Document:
    """Read a file; raises TraceError where it has no node, or protobuf is not installed."""
    try:
        from et_replay.formats.chakra_messages import Messages
    except ImportError:
        raise TraceError(
            f"{source.name} is a Chakra trace in protobuf form, which needs the package protobuf "
            "here: pip install 'et_replay[chakra]'."
        ) from None
    document = _Reader(Messages()).read(source.text)
    if not document.headers.ids:
        raise TraceError(f"{source.name} is a Chakra trace in protobuf form without any node.")
    return document


class _Reader:
    """One pass over the messages of a file; it counts nodes by kind, and those with an operator."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._headers = Headers()
        self._kinds: Counter[str] = Counter()
        self._operators = 0
        self._lists: dict[bytes, list[Any] | None] = {b"": []}

    def read(self, text: memoryview) -> Document:
        """Read the metadata and node after node, up to where the file ends or breaks off."""
        messages = _messages(text)
        begin, position = next(messages)  # `is_chakra` found it
        metadata = self._read_metadata(bytes(text[begin:position]))
        for begin, position in messages:
            if not self._read_node(bytes(text[begin:position])):
                self._headers.lose(text[begin:position])
        rest = len(text) - position
        return Document(
            metadata,
            self._headers,
            breaks_off(len(self._headers.ids), rest) if rest else "",
            of_chakra(self._kinds, self._operators),
        )

    def _read_metadata(self, content: bytes) -> dict[str, Any]:
        parsed = self._messages.parse_metadata(content)
        if parsed is None:
            return {}
        version = {"version": parsed.version.decode(errors="replace")} if parsed.version else {}
        return version | self._messages.values(parsed.attr)

    def _read_node(self, content: bytes) -> bool:
        """Add the node that `content` is; False where it is none."""
        node = self._messages.parse_node(content)
        if node is None:
            return False
        attributes = self._messages.values(node.attr)
        kind = _KINDS[node.type] if node.type in range(len(_KINDS)) else f"type {node.type}"
        fields = {
            "id": node.id,
            "name": node.name.decode(errors="replace"),
            "ctrl_deps": list(node.ctrl_deps),
            "inputs": self._read_columns(node.inputs),
            "outputs": self._read_columns(node.outputs),
            "attrs": attributes,
            "type": kind,
            "data_deps": list(node.data_deps),
            "start_time_micros": node.start_time_micros,
            "duration_micros": node.duration_micros,
        }
        try:
            text = msgspec.json.encode(fields)
        except (ValueError, RecursionError):  # half a character, a number of thousands of digits
            return False
        if not self._headers.read(text):
            return False
        self._kinds[kind] += 1
        self._operators += bool(attributes.get("op_schema"))
        return True

    def _read_columns(self, recorded: Any) -> dict[str, list[Any]]:
        """Read the columns of one side; one damaged value stands for what cannot be read."""
        columns: dict[str, list[Any]] = {}
        for name in _COLUMNS:
            column = self._read_list(getattr(recorded, name))
            if column is None:
                return _UNREADABLE
            columns[name] = column
        return columns

    def _read_list(self, text: bytes) -> list[Any] | None:
        if text in self._lists:
            return self._lists[text]
        column = _parse_list(text)
        if len(text) <= _SHORT:
            self._lists[text] = column
        return column


def _parse_list(text: bytes) -> list[Any] | None:
    """Read the text of a list, as Python or JSON writes it; None for anything else."""
    try:
        column = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            column = _value(ast.parse(text.decode(errors="replace"), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return column if isinstance(column, list) else None


def _value(node: ast.expr) -> Any:
    """Evaluate a literal; raises ValueError for anything else."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(each) for each in node.elts]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str, type(None))):
        return node.value
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)
        if isinstance(value, (int, float)):
            return -value
        if value in ("nan", "inf"):
            return f"-{value}"
    raise ValueError("no literal")


def _messages(text: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where the messages begin and end that are there as a whole, in order."""
    position = 0
    while position < len(text):
        length, begin = _varint(text, position)
        position = begin + length
        if position > len(text):
            return
        yield begin, position


def _has_fields(message: memoryview, firsts: frozenset[int]) -> bool:
    """Tell whether a message is made of fields that begin with these bytes, and of nothing else."""
    position = 0
    while position < len(message):
        first = message[position]
        if first not in firsts:
            return False
        value, position = _varint(message, position + 1)
        if first % 8 == _BYTES:
            position += value
    return position == len(message)


def _varint(text: memoryview, position: int) -> tuple[int, int]:
    """Return a number and the position after it; a number past the end where there is none."""
    value = 0
    for shift, byte in zip(range(0, 64, 7), text[position : position + 10], strict=False):
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
    return len(text) + 1, position
