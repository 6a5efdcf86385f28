"""Nodes of every schema: what the structure says is read, whatever the version string says."""

from __future__ import annotations

import json
import time

import pytest
from trace_builder import (
    FLAT,
    LATEST,
    NodeSpec,
    T,
    mark,
    node,
    operator,
    root,
    thread,
    trace,
)

from et_replay.execution_trace import ExecutionTrace, TensorRef

SCHEMAS = (
    "1.0.1",
    "1.0.2-chakra.0.0.4",
    "1.0.3-chakra.0.0.4",
    "1.0.4-chakra.0.0.4",
    "1.1.0-chakra.0.0.4",
    "1.1.1-chakra.0.0.4",
    "1.1.1-chakra.1.0.0",
)


def add(node_id: int = 5, **others: object) -> NodeSpec:
    tensor = T(8, 9, 2, 6, 4, "cuda:1", shape=(2, 3))
    return operator(node_id, "aten::add", 2, [tensor, 1.5], [tensor], **others)


def only(trace: ExecutionTrace) -> int:
    (position,) = [i for i, name in enumerate(trace.names) if name == "aten::add"]
    return position


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_known_schema_gives_the_same_node_without_a_note(read_nodes, schema):
    read = read_nodes(add(rf_id=3, seq_id=7, fw_parent=4, fw_tid=1), schema=schema)

    got = read.node(only(read))

    strides = (3, 1) if schema.startswith("1.1.1") else None
    tensor = TensorRef(8, 9, 2, 6, 4, "cuda:1", "float", (2, 3), strides)
    assert (got.id, got.name, got.parent, got.tid, got.scope) == (5, "aten::add", 2, 1, 0)
    assert (got.rf_id, got.seq_id, got.fw_parent, got.fw_tid) == (3, 7, 4, 1)
    assert got.op_schema == "aten::add(...) -> ..."
    assert got.inputs == (tensor, 1.5)
    assert got.outputs == (tensor,)
    assert got.is_operator
    assert read.schema == schema
    assert read.notes == ()


@pytest.mark.parametrize("schema", [5, [1], {"a": 1}, True])
def test_schema_that_is_no_text_is_only_noted(read_text, schema):
    read = read_text(json.dumps(trace(add()) | {"schema": schema}))

    assert read.schema == ""
    assert len(read) == 3
    assert read.notes[0].startswith(f"The schema {schema!r} is not a known one")


@pytest.mark.parametrize("schema", ["1.2.0-chakra.0.0.4", "2.0", "something else"])
def test_unknown_schema_is_read_by_structure_with_a_note(read_nodes, schema):
    read = read_nodes(add(), schema=schema)

    assert read.node(only(read)).inputs[0].strides == (3, 1)
    assert read.notes == (
        f"The schema {schema!r} is not a known one; the file was read by its structure.",
    )


def test_missing_schema_is_read_by_structure_with_a_note(read_nodes):
    read = read_nodes(add(), schema=None)

    assert read.schema == ""
    assert read.node(only(read)).inputs[0].shape == (2, 3)
    assert read.notes == ("The file names no schema; it was read by its structure.",)


def test_flat_layout_under_a_new_schema_string_is_still_read(read_text):
    content = trace(add(), schema=FLAT) | {"schema": LATEST}

    read = read_text(json.dumps(content))

    assert read.node(only(read)).inputs[0].strides is None
    assert read.notes == ()


def test_metadata_is_all_that_stands_beside_the_nodes(read_text):
    content = trace(add()) | {"world": {"rank": 3}}

    assert read_text(json.dumps(content)).metadata == {
        "schema": LATEST,
        "pid": 7,
        "time": "2024-05-24 12:00:25",
        "start_ts": 100,
        "finish_ts": 200,
        "world": {"rank": 3},
    }


def test_missing_attributes_have_defaults(read_text):
    bare = {"id": 5, "name": "aten::add", "ctrl_deps": 2}

    read = read_text(json.dumps({"schema": LATEST, "nodes": [bare]}))

    got = read.node(0)
    assert (got.op_schema, got.tid, got.scope, got.seq_id) == ("", 0, 0, -1)
    assert (got.inputs, got.outputs, got.attributes) == ((), (), {})
    assert not got.is_operator


def test_attributes_come_in_any_order_and_unknown_ones_are_kept(read_text):
    content = trace(add(pg_name="0", is_asynchronized_op=True, tensor_range='{"0":[0,7]}'))
    for each in content["nodes"]:
        each["attrs"].reverse()
        each["duration"] = 12

    read = read_text(json.dumps(content))

    got = read.node(only(read))
    assert got.tensor_range == '{"0":[0,7]}'
    assert got.tid == 1
    assert got.attributes == {"pg_name": "0", "is_asynchronized_op": True, "duration": 12}


def test_keys_of_a_node_come_in_any_order(read_text):
    content = trace(add())
    content["nodes"] = [dict(reversed(each.items())) for each in content["nodes"]]

    read = read_text(json.dumps(dict(reversed(content.items()))))

    assert read.node(only(read)).inputs[1] == 1.5
    assert read.notes == ()


def test_attribute_of_an_unexpected_type_is_kept_but_not_trusted(read_nodes):
    read = read_nodes(add(tensor_range=5))

    got = read.node(only(read))
    assert got.tensor_range == ""
    assert got.attributes == {"tensor_range": 5}


def test_parent_may_be_a_list(read_text):
    content = trace(add())
    for each in content["nodes"]:
        each["ctrl_deps"] = [each["ctrl_deps"]]

    read = read_text(json.dumps(content))

    assert read.parents.tolist() == [-1, 0, 1]
    assert read.node(2).parent == 2
    assert read.notes == ()


def test_nodes_are_sorted_by_id_because_files_are_in_completion_order(read_nodes):
    inner, outer = operator(6, "aten::empty", 4), operator(4, "aten::ones", 3)

    read = read_nodes(inner, outer, mark(3, "ProfilerStep#1"))

    assert read.ids.tolist() == [1, 2, 3, 4, 6]
    assert read.names[2:] == ["ProfilerStep#1", "aten::ones", "aten::empty"]
    assert read.parents.tolist() == [-1, 0, 1, 2, 3]


def test_tensor_ids_above_the_node_id_are_fine(read_nodes):
    read = read_nodes(operator(8, "aten::relu", 2, [T(9, 10, 0, 4, 4)], [T(11, 12, 0, 4, 4)]))

    assert [value.tensor_id for value in read.node(2).inputs] == [9]
    assert read.notes == ()


def test_forward_parent_that_is_no_node_is_only_recorded(read_nodes):
    read = read_nodes(add(fw_parent=94839284, fw_tid=2**63 + 5))

    assert read.node(2).fw_parent == 94839284
    assert read.notes == ()


def test_label_of_autograd_with_inputs_but_no_schema_is_no_operator(read_nodes):
    tensor = T(5, 6, 0, 4, 4)
    read = read_nodes(
        node(4, "autograd::engine::evaluate_function: AddBackward0", 2, [tensor]),
        node(5, "detach", 4, [tensor], [tensor]),
        operator(6, "aten::detach", 4, [tensor], [tensor]),
    )

    assert [read.node(i).is_operator for i in range(5)] == [False, False, False, False, True]
    assert read.notes == ()


def test_kernel_and_collective_are_operators_without_schema(read_nodes):
    read = read_nodes(
        node(4, "triton_poi_0", 2, kernel_backend="triton", kernel_file="x.py"),
        node(5, "record_param_comms", 2, pg_name="0"),
    )

    kernel, collective = read.node(2), read.node(3)
    assert kernel.is_kernel and kernel.is_operator and kernel.kernel_file == "x.py"
    assert collective.is_operator and collective.attributes == {"pg_name": "0"}


def test_several_roots_of_one_thread_are_normal(read_nodes):
    read = read_nodes(thread(2), operator(3, "aten::a", 2), thread(4), operator(5, "aten::b", 4))

    assert read.parents.tolist() == [-1, 0, 1, 0, 3]
    assert read.notes == ()


def test_duplicated_ids_are_separate_positions_in_file_order(read_nodes):
    read = read_nodes(operator(5, "aten::first", 2), operator(5, "aten::second", 2))

    assert read.ids.tolist() == [1, 2, 5, 5]
    assert [read.node(i).name for i in (2, 3)] == ["aten::first", "aten::second"]
    assert read.parents.tolist() == [-1, 0, 1, 1]


@pytest.mark.parametrize("schema", [FLAT, LATEST])
def test_thirty_thousand_nodes_are_read_in_linear_time(read_text, schema):
    nodes = [add(5 + i) for i in range(30_000)]
    whole = json.dumps(trace(*nodes, schema=schema)).encode()

    start = time.perf_counter()
    complete = read_text(whole)
    broken = read_text(whole[:-1000])

    assert time.perf_counter() - start < 20
    assert len(complete) == 30_002
    assert len(broken) >= 29_998


def test_orphans_hang_below_the_last_root_of_their_thread_before_them(read_nodes):
    read = read_nodes(
        thread(2),
        operator(10, "aten::empty", 9),
        thread(12),
        operator(13, "aten::ones", 99),
        operator(14, "aten::zeros", 98, tid=5),
        roots=True,
    )

    assert read.ids.tolist() == [1, 2, 10, 12, 13, 14]
    assert read.parents.tolist() == [-1, 0, 1, 0, 3, -1]
    assert read.notes == (
        "3 operators name a parent that is not in the file before it (first: node 10); "
        "they count as called from their thread's root.",
    )


def test_parent_that_is_not_smaller_makes_an_orphan_so_cycles_end(read_nodes):
    read = read_nodes(
        operator(5, "aten::a", 6), operator(6, "aten::b", 5), operator(7, "aten::c", 7)
    )

    assert read.parents.tolist() == [-1, 0, 1, 2, 1]
    assert read.notes[0].startswith("2 operators name a parent that is not in the file")


def test_failed_input_capture_keeps_the_operator_with_its_outputs(read_nodes):
    schema = "aten::to_padded_tensor(Tensor self, float padding) -> Tensor"
    failed = node(9, "aten::to_padded_tensor", 0, [], [T(22, 44, 0, 6, 4)], schema)

    read = read_nodes(thread(2), failed, thread(54), root())

    assert read.parents.tolist() == [-1, 0, 1, 0]
    assert read.node(2).op_schema == schema
    assert read.node(2).outputs[0].storage_id == 44
    assert read.notes == (
        "1 operator names a parent that is not in the file before it (first: node 9); "
        "it counts as called from its thread's root.",
    )


def test_orphaned_labels_alone_are_not_worth_a_note(read_nodes):
    read = read_nodes(mark(5, "ProfilerStep#3", 4))

    assert read.parents.tolist() == [-1, 0, 1]
    assert read.notes == ()


def test_node_zero_is_kept(read_nodes):
    read = read_nodes(operator(0, "aten::lost", 0))

    assert read.ids.tolist() == [0, 1, 2]
    assert read.parents.tolist() == [-1, -1, 1]
