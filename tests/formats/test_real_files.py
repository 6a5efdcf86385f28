"""Every real trace, whole: literal counts, and each tensor against a slow obvious reading."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from et_replay.execution_trace import Opaque, tensors
from et_replay.formats import open_trace

# file: nodes, operators, tensors seen (undefined ones too), schema
FILES = {
    "traces/chakra_allgather_1.0.2.json.gz": (263, 240, 500, "1.0.2-chakra.0.0.4"),
    "traces/hta_simple_add_1.0.1.json.gz": (38, 28, 52, "1.0.1"),
    "traces/param_gpt2_1.1.0.json.gz": (27156, 21558, 49385, "1.1.0-chakra.0.0.4"),
    "traces/param_linear_1.0.1.json.gz": (931, 710, 1747, "1.0.1"),
    "traces/param_pt2_1.1.1.json": (20, 4, 22, "1.1.1-chakra.0.0.4"),
    "traces/param_resnet_1.0.3.json.gz": (14391, 10845, 33678, "1.0.3-chakra.0.0.4"),
    "traces/param_resnet_1.1.0.json.gz": (14392, 10845, 33678, "1.1.0-chakra.0.0.4"),
    "traces/param_resnet_1.1.1.json.gz": (14392, 10845, 33678, "1.1.1-chakra.0.0.4"),
    "workloads/gpt2_et.json.gz": (7419, 5660, 15120, "1.1.1-chakra.0.0.4"),
    "workloads/moe_et.json.gz": (18967, 15650, 40178, "1.1.1-chakra.0.0.4"),
    "workloads/resnet_et.json.gz": (5033, 3346, 12450, "1.1.1-chakra.0.0.4"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_node_and_tensor_of_a_real_file_is_read_without_a_note(shared_data, name):
    content = (shared_data / name).read_bytes()
    recorded = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)["nodes"]
    recorded.sort(key=lambda each: each["id"])
    nodes, operators, seen, schema = FILES[name]

    read = open_trace(shared_data / name, strict=True)

    assert read.notes == ()
    assert read.schema == schema
    assert len(read) == len(recorded) == nodes
    got_operators, got_seen = 0, 0
    for position, expected in enumerate(recorded):
        got = read.node(position)
        got_operators += got.is_operator
        assert (
            (got.id, got.name)
            == (expected["id"], expected["name"])
            == (
                read.ids[position],
                read.names[position],
            )
        )
        for side, values in (("input", got.inputs), ("output", got.outputs)):
            wanted = list(_recorded_tensors(expected, side))
            got_seen += len(wanted)
            assert [_row(tensor) for tensor in tensors(values)] == wanted
        assert not any(_is_damaged(value) for value in got.inputs + got.outputs)
        assert {key: getattr(got, key, None) for key in _attributes(expected)} | dict(
            got.attributes
        ) == _attributes(expected) | dict(got.attributes)
    assert (got_operators, got_seen) == (operators, seen)


@pytest.mark.parametrize("name", FILES)
def test_parents_of_a_real_file_are_the_recorded_ones(shared_data, name):
    read = open_trace(shared_data / name)

    roots = [position for position in range(len(read)) if read.parents[position] < 0]
    assert [read.names[position].split("|")[-1] for position in roots] == ["process]"]
    for position in range(len(read)):
        if position not in roots:
            assert read.ids[read.parents[position]] == read.node(position).parent


def test_real_file_cut_in_the_middle_keeps_every_complete_node(shared_data, tmp_path):
    text = gzip.decompress((shared_data / "workloads/resnet_et.json.gz").read_bytes())
    cut = text[: len(text) // 2]
    complete = [int(part.split(b",")[0]) for part in cut.split(b'{\n        "id": ')[1:-1]]
    (tmp_path / "cut.json").write_bytes(cut)

    read = open_trace(tmp_path / "cut.json")

    assert len(complete) > 2000
    assert read.ids.tolist() == sorted(complete)
    assert read.notes[0].startswith(f"The file breaks off: {len(complete)} complete nodes")


def _row(tensor: Any) -> tuple[Any, ...]:
    return (
        tensor.tensor_id,
        tensor.storage_id,
        tensor.offset,
        tensor.numel,
        tensor.itemsize,
        tensor.device,
        tensor.dtype,
        tensor.shape,
        tensor.strides,
    )


def _recorded_tensors(node: dict[str, Any], side: str) -> Iterator[tuple[Any, ...]]:
    if "attrs" in node:
        columns = node[f"{side}s"]
        values, types, shapes = columns["values"], columns["types"], columns["shapes"]
        strides = columns.get("strides")
    else:
        values, types, shapes = (node[f"{side}{end}"] for end in ("s", "_types", "_shapes"))
        strides = None
    for index, value in enumerate(values):
        stride = strides[index] if strides and index < len(strides) else None
        yield from _walk(value, types[index], shapes[index], stride)


def _walk(value: Any, type_name: str, shape: Any, strides: Any) -> Iterator[tuple[Any, ...]]:
    if type_name.startswith("Tensor("):
        steps = None if strides is None else tuple(strides)
        yield (*value, type_name[len("Tensor(") : -1], tuple(shape), steps)
    elif type_name.endswith("]"):
        for index, item_type in enumerate(_split(type_name[type_name.index("[") + 1 : -1])):
            stride = None if strides is None else strides[index]
            yield from _walk(value[index], item_type, shape[index], stride)


def _split(types: str) -> list[str]:
    parts, depth = [""], 0
    for character in types:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


def _attributes(node: dict[str, Any]) -> dict[str, Any]:
    pairs = dict(node)
    pairs.update((each["name"], each["value"]) for each in node.get("attrs", ()))
    known = ("op_schema", "tid", "scope", "rf_id", "seq_id", "fw_parent", "fw_tid")
    return {key: pairs[key] for key in known}


def _is_damaged(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_is_damaged(item) for item in value)
    return isinstance(value, Opaque) and value.kind.startswith("damaged")
