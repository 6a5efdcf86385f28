"""Chakra's protobuf files: what chakra_converter writes becomes nodes, the rest is described."""

from __future__ import annotations

import gzip
import struct
import sys

import pytest

from et_replay.errors import TraceError
from et_replay.execution_trace import Opaque, TensorRef
from et_replay.formats import Kind, open_trace, sniff
from et_replay.program import build_program, check_operations, select_window

COMP_NODE, COMM_COLL_NODE = 4, 7
STRING, INT64, BOOL, DOUBLE, INT64_LIST = 29, 9, 27, 3, 10  # fields of an attribute's value


def varint(number: int) -> bytes:
    number %= 2**64
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(8 * number) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(8 * number + 2) + varint(len(content)) + content


def attribute(name: str, number: int, value: int | str | bytes) -> bytes:
    return field(10, field(1, name) + field(number, value))


def columns(values: str, shapes: str, types: str) -> bytes:
    return field(1, values) + field(2, shapes) + field(3, types)


def messages(*contents: bytes) -> bytes:
    return b"".join(varint(len(content)) + content for content in contents)


VERSION = field(1, "1.0.0")
METADATA = field(2, field(1, "schema") + field(STRING, "1.1.1-chakra.0.0.4")) + field(
    2, field(1, "pid") + field(13, 7)
)
THREAD = b"".join(
    [
        field(1, 1),
        field(2, "[pytorch|profiler|execution_trace|thread]"),
        field(3, COMP_NODE),
        attribute("tid", INT64, 1),
        attribute("op_schema", STRING, ""),
        attribute("is_cpu_op", BOOL, 1),
    ]
)
ADD = b"".join(
    [
        field(1, 2),
        field(2, "aten::add"),
        field(3, COMP_NODE),
        field(4, varint(1)),
        field(5, varint(1)),
        field(7, 12),
        field(
            8,
            columns(
                "[[8, 9, 0, 6, 4, 'cpu'], 'nan', -inf]",
                "[[2, 3], [], []]",
                "['Tensor(float)', 'Double', 'Double']",
            ),
        ),
        field(9, columns('[[10, 11, 0, 6, 4, "cpu"]]', "[[2, 3]]", '["Tensor(float)"]')),
        attribute("rf_id", INT64, 5),
        attribute("seq_id", INT64, -1),
        attribute("tid", INT64, 1),
        attribute("op_schema", STRING, "aten::add(...) -> ..."),
        attribute("is_cpu_op", BOOL, 1),
        attribute("stream", INT64, 0),
    ]
)
KERNEL = b"".join(
    [
        field(1, 3),
        field(2, "void add_kernel()"),
        field(3, COMP_NODE),
        field(4, varint(2)),
        field(8, columns("[5]", "[[]]", "['Int']")),
        attribute("op_schema", STRING, "aten::add(...) -> ..."),
        attribute("is_cpu_op", BOOL, 0),
        attribute("stream", INT64, 7),
    ]
)
CONVERTED = messages(METADATA, THREAD, ADD, KERNEL)
GENERATED = messages(
    VERSION,
    field(2, "FWD") + field(3, COMP_NODE),
    field(1, 1)
    + field(2, "ALL_REDUCE")
    + field(3, COMM_COLL_NODE)
    + field(5, varint(0))
    + attribute("comm_size", INT64, 65536),
)


@pytest.fixture
def write(tmp_path):
    def write(content: bytes):
        path = tmp_path / "rank.0.et"
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def read(write):
    pytest.importorskip("google.protobuf", reason="protobuf (extra chakra) is not installed")
    return lambda content, strict=False: open_trace(write(content), strict=strict)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    "content", [CONVERTED, GENERATED, messages(VERSION), messages(b"", ADD), CONVERTED[:-9]]
)
def test_file_is_recognised_by_its_fields(write, content, pack):
    assert sniff(write(pack(content))) is Kind.EXECUTION_TRACE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(1),
        bytes(100),
        b"\x07",
        messages(b"\x0b"),  # a field written in a way that metadata has not
        messages(VERSION) + b"\x03\x0a\x01a",  # metadata twice
        messages(VERSION + b"\x0a"),
        b"\x20" + VERSION,  # longer than the file
        b"\nIteration Index : 0\n1 0x10 5 0\n",
    ],
)
def test_file_of_another_form_is_not_taken_for_it(write, content):
    assert sniff(write(content)) is not Kind.EXECUTION_TRACE


def test_without_protobuf_one_sentence_says_how_to_get_it(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "et_replay.formats.chakra_messages", None)
    path = write(CONVERTED)

    with pytest.raises(TraceError) as raised:
        open_trace(path)

    assert str(raised.value) == (
        f"{path} is a Chakra trace in protobuf form, which needs the package protobuf here: "
        "pip install 'et_replay[chakra]'."
    )


def test_converted_call_is_a_node_with_its_values(read):
    trace = read(CONVERTED)

    add = trace.node(1)
    assert (add.id, add.name, add.parent, add.tid) == (2, "aten::add", 1, 1)
    assert (add.rf_id, add.seq_id, add.op_schema) == (5, -1, "aten::add(...) -> ...")
    assert add.inputs == (
        TensorRef(8, 9, 0, 6, 4, "cpu", "float", (2, 3), None),
        pytest.approx(float("nan"), nan_ok=True),
        float("-inf"),
    )
    assert add.outputs == (TensorRef(10, 11, 0, 6, 4, "cpu", "float", (2, 3), None),)
    assert add.attributes == {
        "is_cpu_op": True,
        "stream": 0,
        "type": "COMP_NODE",
        "data_deps": [1],
        "start_time_micros": 0,
        "duration_micros": 12,
    }
    assert trace.schema == "1.1.1-chakra.0.0.4"
    assert trace.metadata == {"schema": "1.1.1-chakra.0.0.4", "pid": 7}
    assert trace.parents.tolist() == [-1, 0, 1]
    assert trace.notes == (
        "Chakra's protobuf form has neither strides nor what generated kernels and collectives "
        "need; the JSON file that it was made from tells more.",
    )


def test_kernel_is_a_label_and_only_the_call_is_replayed(read):
    trace = read(CONVERTED)

    kernel = trace.node(2)
    assert (kernel.name, kernel.op_schema, kernel.inputs) == ("void add_kernel()", "", ())
    assert not kernel.is_operator
    assert kernel.attributes["stream"] == 7
    program = build_program(trace, select_window(trace))
    assert [operation.node.name for operation in program.operations] == ["aten::add"]


def test_generated_file_is_described_and_not_replayed(read):
    trace = read(GENERATED)

    assert [trace.node(place).name for place in range(2)] == ["FWD", "ALL_REDUCE"]
    assert trace.node(1).attributes["comm_size"] == 65536
    assert trace.notes == (
        "No node names an operator of PyTorch, so none can be replayed "
        "(1 COMM_COLL_NODE, 1 COMP_NODE).",
        "The file names no schema; it was read by its structure.",
    )
    program = build_program(trace, select_window(trace))
    with pytest.raises(TraceError, match="holds no operator in window all"):
        check_operations(program)


def test_attributes_of_every_kind_keep_their_values(read):
    node = b"".join(
        [
            field(2, "METADATA_NODE"),
            field(3, 99),
            field(10, field(1, "double") + b"\x19" + struct.pack("<d", 1.25)),
            field(10, field(1, "float") + b"\x2d" + struct.pack("<f", 0.5)),
            attribute("sint32", 15, 3),  # zigzag
            field(10, field(1, "fixed64") + b"\xa9\x01" + struct.pack("<Q", 2**40)),
            attribute("int64_list", INT64_LIST, field(1, varint(3) + varint(-4))),
            attribute("string_list", 30, field(1, "a") + field(1, "b")),
            attribute("bytes", 31, b"\xff"),
            attribute("no", BOOL, 0),
            field(10, field(1, "empty")),
        ]
    )

    attributes = read(messages(VERSION, node)).node(0).attributes

    assert attributes == {
        "double": 1.25,
        "float": 0.5,
        "sint32": -2,
        "fixed64": 2**40,
        "int64_list": [3, -4],
        "string_list": ["a", "b"],
        "bytes": "\N{REPLACEMENT CHARACTER}",
        "no": False,
        "empty": None,
        "type": "type 99",
        "data_deps": [],
        "start_time_micros": 0,
        "duration_micros": 0,
    }


@pytest.mark.parametrize("values", ["[open('x')]", "5", "[1", "[" * 300, "[1 + 2]", "\x00", "[1j]"])
def test_values_that_are_no_list_are_one_damaged_value(read, values):
    content = messages(
        METADATA, THREAD, field(1, 2) + field(2, "aten::neg") + field(8, field(1, values))
    )

    assert read(content).node(1).inputs == (Opaque("damaged list"),)
    with pytest.raises(TraceError, match=r"node 2 \(aten::neg\) holds a damaged list"):
        read(content, strict=True)


def test_file_that_breaks_off_keeps_its_complete_nodes(read):
    content = messages(METADATA, THREAD, ADD) + messages(KERNEL)[:20]

    trace = read(content)

    assert trace.ids.tolist() == [1, 2]
    assert trace.notes[0] == (
        "The file breaks off: 2 complete nodes of it could be read, and its last 20 bytes ignored."
    )
    with pytest.raises(TraceError, match="is damaged: The file breaks off"):
        read(content, strict=True)


def test_message_that_is_no_node_is_left_out(read):
    trace = read(messages(METADATA, THREAD, b"\x07\x07", ADD))

    assert trace.ids.tolist() == [1, 2]
    assert trace.notes[0] == "Left out: 1 unreadable piece between the nodes (2 bytes)."


def test_file_without_nodes_is_refused(read):
    with pytest.raises(TraceError, match="is a Chakra trace in protobuf form without any node"):
        read(messages(VERSION))
