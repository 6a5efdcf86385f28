"""The text of one node goes in, a Node comes out, whatever the schema: the structure decides.

1.0.1            {"name", "id", "parent", "tid", ..., "inputs": [...], "input_shapes": ...}
1.0.2 and later  {"id", "name", "ctrl_deps", "inputs": {"values", "shapes", "types"},
                  "outputs": {...}, "attrs": [{"name": "tid", "type", "value"}, ...]}
1.1.1 and later  the same with "strides" beside "shapes"

Chakra's linker adds a copy of a call for each of its kernels: named after the kernel, with the key
"cat". Such a device node is a label here, without the operator and the values that it repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from et_replay.execution_trace import Node, Value, damaged
from et_replay.formats.mending import NodeText, mend
from et_replay.formats.values import ValueDecoders

_ATTRIBUTES: dict[str, type] = {
    "op_schema": str,
    "tid": int,
    "scope": int,
    "rf_id": int,
    "seq_id": int,
    "fw_parent": int,
    "fw_tid": int,
    "kernel_backend": str,
    "kernel_file": str,
    "tensor_range": str,
}
_STRUCTURE = frozenset({"id", "name", "ctrl_deps", "parent", "attrs", "inputs", "outputs"}) | {
    f"{side}_{column}" for side in ("input", "output") for column in ("shapes", "types", "strides")
}

_OF_OPERATORS = frozenset({"op_schema", "kernel_backend", "kernel_file", "tensor_range"})


class NodeDecoder:
    """Decodes the node at a position; never fails, as `ValueDecoders` does not."""

    def __init__(
        self,
        ids: Sequence[int],
        names: Sequence[str],
        parent_ids: Sequence[int],
        texts: Sequence[NodeText],
    ) -> None:
        self.names = names
        self.parent_ids = parent_ids
        self._ids = ids
        self._texts = texts
        self._json = msgspec.json.Decoder(dict[str, Any])
        self._values = ValueDecoders()
        self._strings: dict[str, str] = {}

    def decode(self, position: int) -> Node:
        """Decode one node."""
        fields = self._fields(self._texts[position])
        known, others = self._read_attributes(fields)
        if others and _is_device_node(others):
            known = {name: known[name] for name in known.keys() - _OF_OPERATORS}
            fields = {}
        inputs = self._read_values(fields, "input")
        outputs = self._read_values(fields, "output")
        return Node(
            self._ids[position],
            self.names[position],
            self.parent_ids[position],
            inputs,
            outputs,
            attributes=others,
            **known,
        )

    def damages(self) -> Iterator[str]:
        """Decode every node and say which are damaged, or hold what is: for strict reading."""
        for position, text in enumerate(self._texts):
            where = f"node {self._ids[position]} ({self.names[position]})"
            try:
                self._json.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                yield f"{error} in {where}."
                continue
            node = self.decode(position)
            if node.lacks_schema:
                yield f"{where} has lost its op_schema."
            for value in damaged((node.inputs, node.outputs)):
                yield f"{where} holds a {value.kind}."

    def _fields(self, text: NodeText) -> dict[str, Any]:
        try:
            return self._json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            mended = mend(text)
            return mended.fields if mended else {}

    def _read_values(self, fields: dict[str, Any], side: str) -> tuple[Value, ...]:
        columns, prefix = fields.get(side + "s"), ""
        if not isinstance(columns, dict):  # the flat layout
            columns, prefix = {**fields, "values": columns}, side + "_"
        values = columns.get("values")
        if not values or not isinstance(values, list):
            return ()
        types, shapes = columns.get(prefix + "types"), columns.get(prefix + "shapes")
        strides = columns.get(prefix + "strides")
        return self._values.decode(
            values,
            types if isinstance(types, list) else (),
            shapes if isinstance(shapes, list) else (),
            strides if isinstance(strides, list) else None,
        )

    def _read_attributes(self, fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the attributes that Node has a field for, and all others."""
        found: dict[str, Any] = _attributes(fields.get("attrs"))
        if not fields.keys() <= _STRUCTURE:  # the flat layout, or one to come
            found.update((key, fields[key]) for key in fields.keys() - _STRUCTURE)
        kinds = _ATTRIBUTES
        known: dict[str, Any] = {
            name: value for name, value in found.items() if type(value) is kinds.get(name)
        }
        others: dict[str, Any] = {}
        if len(known) < len(found):
            others = {name: value for name, value in found.items() if name not in known}
        schema: Any = known.get("op_schema")
        if schema:  # a trace has few different ones, and each is long
            known["op_schema"] = self._strings.setdefault(schema, schema)
        return known, others


def _is_device_node(attributes: dict[str, Any]) -> bool:
    """Tell a kernel by Chakra's category in linked JSON, or by the flag of its protobuf files."""
    return attributes.get("cat") is not None or attributes.get("is_cpu_op") is False


def _attributes(recorded: Any) -> dict[str, Any]:
    """Return values by name from a list of `{"name", "type", "value"}`, or from an object."""
    if isinstance(recorded, dict):
        return recorded
    if not isinstance(recorded, list):
        return {}
    try:
        return {attribute["name"]: attribute["value"] for attribute in recorded}
    except (KeyError, TypeError):
        whole = [attribute for attribute in recorded if isinstance(attribute, dict)]
        return {str(each.get("name")): each.get("value", each) for each in whole}
