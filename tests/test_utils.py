"""What Chakra's tools import: calls as a tree, with the names that those tools use."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest
from trace_builder import T, mark, operator, thread, trace, write_trace

from et_replay.errors import TraceError
from et_replay.execution_trace import (
    EXECUTION_TRACE_PROCESS_ANNOTATION,
    EXECUTION_TRACE_THREAD_ANNOTATION,
    TensorRef,
)
from et_replay.utils import load_execution_trace_file, read_dictionary_from_json_file

NODES = (
    mark(3, "ProfilerStep#0"),
    operator(5, "aten::linear", 3, rf_id=11, seq_id=4),
    operator(7, "aten::addmm", 5, [T(8, 9, 0, 6, 4)], rf_id=12, fw_parent=5, fw_tid=2),
    operator(6, "aten::t", 5, rf_id=13),
)


@pytest.fixture
def nodes(tmp_path: Path):
    return load_execution_trace_file(write_trace(tmp_path / "et.json", *NODES)).get_nodes()


def test_every_node_is_found_by_its_id(nodes):
    assert sorted(nodes) == [1, 2, 3, 5, 6, 7]
    assert nodes[1].name == EXECUTION_TRACE_PROCESS_ANNOTATION
    assert nodes[2].name == EXECUTION_TRACE_THREAD_ANNOTATION


def test_children_follow_each_other_by_id_below_the_process(nodes):
    def below(node):
        return node.id, [below(child) for child in node.children]

    assert below(nodes[1]) == (1, [(2, [(3, [(5, [(6, []), (7, [])])])])])


def test_node_knows_its_parent(nodes):
    assert nodes[1].parent is None
    assert nodes[7].parent is nodes[5]
    assert (nodes[7].parent_id, nodes[1].parent_id) == (5, 1)


def test_node_has_what_was_recorded(nodes):
    node = nodes[7]

    assert (node.id, node.name, node.rf_id, node.seq_id) == (7, "aten::addmm", 12, -1)
    assert (node.tid, node.fw_tid, node.scope, node.fw_parent_id) == (1, 2, 0, 5)
    assert node.op_schema == "aten::addmm(...) -> ..."
    assert node.inputs == (TensorRef(8, 9, 0, 6, 4, "cuda:0", "float", (6,), (1,)),)
    assert repr(node) == "TreeNode(id=7, name='aten::addmm')"
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = node.colour


def test_operator_counts_where_no_other_calls_it(nodes):
    assert [node for node in sorted(nodes) if nodes[node].is_op()] == [5]
    assert [node for node in sorted(nodes) if nodes[node].is_op(detail=True)] == [5, 6, 7]


def test_copy_of_a_tree_is_a_tree(nodes):
    copied = copy.deepcopy(nodes[7])

    assert copied.parent is not nodes[5]
    assert copied.parent.children[1] is copied


def test_call_whose_parent_is_missing_hangs_below_its_thread(tmp_path):
    path = write_trace(tmp_path / "et.json", thread(2), operator(9, "aten::neg", 4))

    tree = load_execution_trace_file(path)

    assert [child.id for child in tree.get_nodes()[2].children] == [9]
    assert tree.schema == "1.1.1-chakra.0.0.4"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_json_object_is_read_plain_or_packed(tmp_path, pack):
    path = tmp_path / "kineto.json"
    path.write_bytes(pack(b'{"traceEvents": [{"dur": 1.5, "ts": NaN}], "n": 1}'))

    assert read_dictionary_from_json_file(path) == {
        "traceEvents": [{"dur": 1.5, "ts": "nan"}],
        "n": 1,
    }


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"a": ', b"\x00\x01"])
def test_file_without_an_object_is_refused(tmp_path, content):
    path = tmp_path / "kineto.json"
    path.write_bytes(content)

    with pytest.raises(TraceError, match="is not a JSON object, such as a Kineto trace is"):
        read_dictionary_from_json_file(path)


EVENTS = [
    {"cat": "cpu_op", "name": "aten::linear", "ts": 100, "dur": 50},
    {"cat": "cpu_op", "name": "aten::addmm", "ts": 110, "dur": 30},
    {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 120, "dur": 5},
    {"cat": "kernel", "name": "void gemm()", "ts": 160, "dur": 20, "tid": 7},
]
ARGUMENTS = [
    {"External id": 1, "Record function id": 11},
    {"External id": 2, "Record function id": 12},
    {"External id": 2, "correlation": 3},
    {"External id": 2, "correlation": 3, "stream": 7},
]


def test_trace_linker_of_chakra_links_a_trace_with_its_kineto_partner(tmp_path, monkeypatch):
    module = "chakra.src.trace_link.trace_linker"
    reason = "mlc-chakra is not installed, or not with what it needs"
    linker = pytest.importorskip(module, reason=reason, exc_type=ImportError).TraceLinker
    # the critical path comes from another library, and runs with some versions of pandas only
    monkeypatch.setattr(linker, "load_sync_dependencies", lambda *arguments: {})
    host = write_trace(tmp_path / "et.json", *NODES)
    events = zip(EVENTS, ARGUMENTS, strict=True)
    kineto = tmp_path / "kineto.json"
    kineto.write_text(
        json.dumps({"traceEvents": [{"ph": "X", "tid": 1} | e | {"args": a} for e, a in events]})
    )

    linker().link(0, str(host), str(kineto), str(tmp_path / "linked.json"))

    linked = json.loads((tmp_path / "linked.json").read_text())["nodes"]
    assert [
        (n["id"], n["name"], n["ctrl_deps"], n.get("ts"), n.get("inclusive_dur"), n.get("cat"))
        for n in linked[2:]
    ] == [
        (2, "ProfilerStep#0", 1, None, None, None),
        (3, "aten::linear", 2, 100, 50, None),
        (4, "aten::t", 3, None, None, None),
        (5, "aten::addmm", 3, 110, 30, None),
        (6, "void gemm()", 5, 160, 20, "kernel"),
    ]
    assert linked[3]["exclusive_dur"] == 20
    read = load_execution_trace_file(tmp_path / "linked.json").get_nodes()
    assert [(id, read[id].is_op(detail=True)) for id in (5, 6)] == [(5, True), (6, False)]
    assert trace(*NODES)["nodes"][3]["inputs"] == linked[5]["inputs"]
