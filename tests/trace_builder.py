"""Hand-written execution traces: nodes in, the dict or file that PyTorch's observer writes out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LATEST = "1.1.1-chakra.0.0.4"
FLAT = "1.0.1"


@dataclass(frozen=True)
class Typed:
    """A value with the type string, shapes and strides that no plain Python value stands for.

    `Typed("cuda:0", "Device")`, `Typed("<Generator>", "Generator")`, `Typed("nan", "Double")`.
    """

    value: object
    type: str
    shape: object = ()
    strides: object = ()


NONE = Typed("<None>", "None")
UNDEFINED = Typed([0, 0, 0, 0, 0, ""], "Tensor(nullptr (uninitialized))", [], [])


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense row-major tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def T(  # noqa: N802 - the notation of the facts about traces
    tid: int,
    sid: int,
    offset: int,
    numel: int,
    itemsize: int,
    device: str = "cuda:0",
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dtype: str = "float",
) -> Typed:
    """Return a tensor; without `shape` it has one dimension, without `strides` it is contiguous."""
    shape = (numel,) if shape is None else shape
    strides = contiguous_strides(shape) if strides is None else strides
    numbers = [tid, sid, offset, numel, itemsize, device]
    return Typed(numbers, f"Tensor({dtype})", list(shape), list(strides))


def typed(value: object) -> Typed:
    """Give a plain value the observer's form: a list becomes a GenericList, a tuple a Tuple."""
    if isinstance(value, Typed):
        return value
    if value is None:
        return NONE
    if isinstance(value, (list, tuple)):
        items = [typed(item) for item in value]
        kind = "GenericList" if isinstance(value, list) else "Tuple"
        return Typed(
            [item.value for item in items],
            f"{kind}[{','.join(item.type for item in items)}]",
            [item.shape for item in items],
            [item.strides for item in items],
        )
    kinds = {bool: "Bool", int: "Int", float: "Double", str: "String"}
    return Typed(value, kinds[type(value)])


@dataclass(frozen=True)
class NodeSpec:
    """One node before a schema lays it out; `attributes` are added beside the usual ones."""

    id: int
    name: str
    parent: int
    inputs: Sequence[object] = ()
    outputs: Sequence[object] = ()
    schema: str = ""
    tid: int = 1
    scope: int = 0
    rf_id: int = 0
    seq_id: int = -1
    fw_parent: int = 0
    fw_tid: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)


def node(
    id: int,
    name: str,
    parent: int = 2,
    inputs: Sequence[object] = (),
    outputs: Sequence[object] = (),
    schema: str = "",
    tid: int = 1,
    **others: Any,
) -> NodeSpec:
    """Return a node; what NodeSpec does not name is an attribute: `kernel_backend="triton"`."""
    known = {key: others.pop(key) for key in NodeSpec.__dataclass_fields__ if key in others}
    return NodeSpec(id, name, parent, inputs, outputs, schema, tid, attributes=others, **known)


def operator(
    id: int,
    name: str,
    parent: int = 2,
    inputs: Sequence[object] = (),
    outputs: Sequence[object] = (),
    **others: Any,
) -> NodeSpec:
    """Return an operator: a node with a schema, `name(...) -> ...` unless one is given."""
    others.setdefault("schema", f"{name}(...) -> ...")
    return node(id, name, parent, inputs, outputs, **others)


def root(id: int = 1) -> NodeSpec:
    """Return the process node, its own parent."""
    return node(id, "[pytorch|profiler|execution_trace|process]", id, tid=0, scope=7)


def thread(id: int = 2, tid: int = 1, parent: int = 1) -> NodeSpec:
    """Return a thread's root node."""
    return node(id, "[pytorch|profiler|execution_trace|thread]", parent, tid=tid, scope=7)


def mark(id: int, name: str, parent: int = 2, tid: int = 1) -> NodeSpec:
    """Return a user annotation, such as `ProfilerStep#3`."""
    return node(id, name, parent, tid=tid, scope=7)


def trace(*nodes: NodeSpec, schema: str | None = LATEST, roots: bool = True) -> dict[str, Any]:
    """Return a whole trace in the layout of `schema` (None: no schema key, newest layout).

    Unless `roots` is false, the process node 1 and the thread node 2 are added where missing.
    """
    ids = {spec.id for spec in nodes}
    first = [thread()] if roots and 2 not in ids else []
    last = [root()] if roots and 1 not in ids else []
    version = _version(schema)
    lay_out = _flat if version <= (1, 0, 1) else _nested
    head: dict[str, Any] = {} if schema is None else {"schema": schema}
    return {
        **head,
        "pid": 7,
        "time": "2024-05-24 12:00:25",
        "start_ts": 100,
        "nodes": [lay_out(spec, version) for spec in (*first, *nodes, *last)],
        "finish_ts": 200,
    }


def write_trace(
    path: Path, *nodes: NodeSpec, schema: str | None = LATEST, roots: bool = True
) -> Path:
    """Write a whole trace as a JSON file and return its path."""
    path.write_text(json.dumps(trace(*nodes, schema=schema, roots=roots)))
    return path


def _version(schema: str | None) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", schema or "")
    return tuple(map(int, match[0].split("."))) if match else (1, 1, 1)


def _flat(spec: NodeSpec, version: tuple[int, ...]) -> dict[str, Any]:
    ins, outs = [typed(value) for value in spec.inputs], [typed(value) for value in spec.outputs]
    return {
        "name": spec.name,
        "id": spec.id,
        "rf_id": spec.rf_id,
        "parent": spec.parent,
        "fw_parent": spec.fw_parent,
        "seq_id": spec.seq_id,
        "scope": spec.scope,
        "tid": spec.tid,
        "fw_tid": spec.fw_tid,
        "op_schema": spec.schema,
        **spec.attributes,
        "inputs": [value.value for value in ins],
        "input_shapes": [value.shape for value in ins],
        "input_types": [value.type for value in ins],
        "outputs": [value.value for value in outs],
        "output_shapes": [value.shape for value in outs],
        "output_types": [value.type for value in outs],
    }


def _nested(spec: NodeSpec, version: tuple[int, ...]) -> dict[str, Any]:
    attributes = {
        "rf_id": spec.rf_id,
        "fw_parent": spec.fw_parent,
        "seq_id": spec.seq_id,
        "scope": spec.scope,
        "tid": spec.tid,
        "fw_tid": spec.fw_tid,
        "op_schema": spec.schema,
        **spec.attributes,
    }
    return {
        "id": spec.id,
        "name": spec.name,
        "ctrl_deps": spec.parent,
        "inputs": _columns(spec.inputs, version),
        "outputs": _columns(spec.outputs, version),
        "attrs": [
            {"name": name, "type": _attribute_type(name, value), "value": value}
            for name, value in attributes.items()
        ],
    }


def _attribute_type(name: str, value: object) -> str:
    if isinstance(value, str):
        return "string"
    return "int64" if name == "seq_id" else "uint64"


def _columns(values: Sequence[object], version: tuple[int, ...]) -> dict[str, Any]:
    items = [typed(value) for value in values]
    columns: dict[str, Any] = {
        "values": [item.value for item in items],
        "shapes": [item.shape for item in items],
        "types": [item.type for item in items],
    }
    if version >= (1, 1, 1):
        columns["strides"] = [item.strides for item in items]
    return columns
