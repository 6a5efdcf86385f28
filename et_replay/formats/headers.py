"""The head of each node (id, name, parent), read in one fast pass; the rest stays text."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from et_replay.formats.mending import FIELD, NodeText, mend

_LIMIT = 2**63
_Id = Annotated[int, msgspec.Meta(ge=-_LIMIT, le=_LIMIT - 1)]
_ID = re.compile(rb'"id"\s*:\s*"?(\d{1,18})\b')
_DIGITS = re.compile(r"-?\d{1,19}")


class Header(msgspec.Struct, gc=False):
    """What orders and links the nodes; `parent` is the name of `ctrl_deps` before schema 1.0.2."""

    id: _Id
    name: str
    ctrl_deps: _Id | list[_Id] | None = None
    parent: _Id | list[_Id] | None = None


class Headers:
    """The nodes that were read, in file order, and what was repaired or lost on the way.

    `linked` counts the nodes that name a parent at all. `repairs` has node ids by kind of repair,
    `lost` the id (None where there is none to see) and length of what no node came of.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.parent_ids: list[int] = []
        self.names: list[str] = []
        self.texts: list[NodeText] = []
        self.linked = 0
        self.repairs: dict[str, list[int]] = {}
        self.lost: list[tuple[int | None, int]] = []
        self._decode = msgspec.json.Decoder(Header).decode
        self._names: dict[str, str] = {}

    def read(self, text: NodeText) -> bool:
        """Add the node that `text` is, repaired if need be; False where it is none."""
        try:
            header = self._decode(text)
        except (msgspec.DecodeError, RecursionError):
            return self._read_mended(text)
        parent = header.parent if header.ctrl_deps is None else header.ctrl_deps
        self._add(header.id, header.name, parent, text)
        return True

    def lose(self, text: NodeText) -> None:
        """Count a text that no node came of."""
        content = bytes(text)
        match = _ID.search(content)
        self.lost.append((int(match[1]) if match else None, len(content)))

    def _read_mended(self, text: NodeText) -> bool:
        mended = mend(text)
        if mended is None:
            return False
        node_id = _integer(mended.fields.get("id"))
        if node_id is None:
            return False
        name, repairs = mended.fields.get("name"), mended.repairs
        parent = mended.fields.get("ctrl_deps", mended.fields.get("parent"))
        first = parent[0] if isinstance(parent, list) and parent else parent
        if not repairs or not isinstance(name, str):
            repairs = (*repairs, FIELD)
        for kind in repairs:
            self.repairs.setdefault(kind, []).append(node_id)
        self._add(node_id, name if isinstance(name, str) else "", _integer(first), mended.text)
        return True

    def _add(self, node_id: int, name: str, parent: int | list[int] | None, text: NodeText) -> None:
        if isinstance(parent, list):  # other writers name several dependencies; the first calls
            parent = parent[0] if parent else None
        self.linked += parent is not None
        self.ids.append(node_id)
        self.names.append(self._names.setdefault(name, name))
        self.parent_ids.append(parent or 0)
        self.texts.append(text)


def _integer(value: Any) -> int | None:
    """Return an integer of 64 bits, also of one written as a string; else None."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and -_LIMIT <= value < _LIMIT
    return value if fits else None
