"""Nodes of a trace's JSON as the oracle wants them: operators, and what each tensor proves."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sight:
    """One tensor as one node shows it; `bytes` is the extent it proves of its storage."""

    tensor_id: int
    storage_id: int
    device: str
    bytes: int
    estimated: bool
    shape: tuple[int, ...]
    dtype: str


@dataclass
class Call:
    """One node with the defined tensors it shows, those of lists and tuples too."""

    id: int
    parent_id: int
    name: str
    operator: bool
    kernel: bool
    tid: int
    inputs: list[Sight]
    outputs: list[Sight]
    storage_argument: bool


def load(path: Path) -> dict[str, Any]:
    """Read a plain or gzipped JSON file."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def _top_level_types(text: str) -> list[str]:
    """Split `GenericList[Int,Tuple[Int,Int]]` into its element types; a plain type has none."""
    match = re.fullmatch(r"(?:GenericList|Tuple)\[(.*)\]", text, re.DOTALL)
    if match is None or not match[1]:
        return []
    parts, depth = [""], 0
    for letter in match[1]:
        depth += letter in "[(<"
        depth -= letter in "])>"
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _sights(value: Any, kind: str, shape: Any, strides: Any) -> Iterator[Sight]:
    """Yield the defined tensors of one argument, in lists and tuples too."""
    if kind.startswith("Tensor("):
        if kind.startswith("Tensor(nullptr"):
            return
        tensor_id, storage_id, offset, numel, itemsize = value[:5]
        extent = numel
        if strides is not None and len(strides) == len(shape):
            extent = 1 + sum((shape[i] - 1) * abs(strides[i]) for i in range(len(shape)))
        empty = storage_id == 0 or 0 in shape or extent == 0
        device = value[5].split(":")[0] if len(value) > 5 else ""
        size = 0 if empty else (offset + extent) * itemsize
        yield Sight(tensor_id, storage_id, device, size, strides is None, tuple(shape), kind)
        return
    for index, item in enumerate(_top_level_types(kind)):
        item_strides = None if strides is None else strides[index]
        yield from _sights(value[index], item, shape[index], item_strides)


def _column(node: dict[str, Any], side: str) -> tuple[list[Sight], list[str]]:
    if "ctrl_deps" in node:
        table = node[f"{side}s"]
        values, shapes, kinds = table["values"], table["shapes"], table["types"]
        all_strides = table.get("strides")
    else:
        values, shapes, kinds = (node[side + key] for key in ("s", "_shapes", "_types"))
        all_strides = None
    found: list[Sight] = []
    for index, kind in enumerate(kinds):
        strides = None
        if all_strides is not None:
            strides = all_strides[index] if index < len(all_strides) else []
        found.extend(_sights(values[index], kind, shapes[index], strides))
    return found, kinds


def call_of(node: dict[str, Any]) -> Call:
    attributes = {item["name"]: item["value"] for item in node.get("attrs", [])} or node
    kernel = bool(attributes.get("kernel_backend"))
    schema = bool(attributes.get("op_schema"))
    inputs, kinds = _column(node, "input")
    outputs, _ = _column(node, "output")
    return Call(
        id=node["id"],
        parent_id=node["ctrl_deps"] if "ctrl_deps" in node else node["parent"],
        name=node["name"],
        operator=schema or kernel or node["name"] == "record_param_comms",
        kernel=kernel,
        tid=attributes.get("tid", 0),
        inputs=inputs,
        outputs=outputs,
        storage_argument="Storage" in kinds,
    )


def waits_of(nodes: list[dict[str, Any]]) -> dict[int, int]:
    """Map the id of each collective's record to that of the record that waits for it."""
    pending: dict[Any, int] = {}
    found: dict[int, int] = {}
    for node in sorted(nodes, key=lambda node: node["id"]):
        if node["name"] != "record_param_comms":
            continue
        inputs = node["inputs"]
        values = inputs if isinstance(inputs, list) else inputs["values"]
        if "wait" not in values:
            pending[str(values[1])] = node["id"]
        elif str(values[0]) in pending:
            found[pending.pop(str(values[0]))] = node["id"]
    return found
