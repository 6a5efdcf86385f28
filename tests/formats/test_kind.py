"""An execution trace and a memory history are told apart by content alone."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import sys
from types import SimpleNamespace

import pytest
from trace_builder import T, operator, trace

from et_replay.errors import TraceError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import Kind, open_recording, open_trace, sniff

NODES = [operator(5 + n, "aten::add", 2, [T(3, 4, 0, 6, 4)], [T(5, 6, 0, 6, 4)]) for n in range(3)]
TRACE = json.dumps(trace(*NODES)).encode()
SNAPSHOT = {
    "segments": [
        {"address": 0, "total_size": 512, "blocks": [{"size": 512, "state": "active_allocated"}]}
    ],
    "device_traces": [],
}
EVENT = {"name": "[memory]", "ts": 1, "args": {"Bytes": 1, "Addr": 1, "Device Type": 1}}
FILES = {
    Kind.EXECUTION_TRACE: TRACE,
    Kind.SNAPSHOT: pickle.dumps(SNAPSHOT),
    Kind.KINETO: json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]}).encode(),
    Kind.STALLOC_LOG: b"\nIteration Index : 0\n1 0x10 5 0\n",
    Kind.RMM_LOG: b"Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x10,5,0\n",
    Kind.RECORDED_STREAMS: b'{"streams":[0],"allocations":[[5,0,0]],"events":[[0,"a",0]]}',
}


@pytest.fixture
def write(tmp_path):
    def write(content: bytes):
        path = tmp_path / "file"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kind", FILES)
def test_every_kind_is_recognised_and_opened(write, kind, pack):
    path = write(pack(FILES[kind]))

    assert sniff(path) is kind
    expected = ExecutionTrace if kind is Kind.EXECUTION_TRACE else MemoryHistory
    assert isinstance(open_recording(path), expected)


@pytest.mark.parametrize("kind", FILES)
def test_standard_input_is_read_once(monkeypatch, kind):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(FILES[kind])))

    assert open_recording("-").source == "standard input"


def test_trace_that_breaks_off_is_still_an_execution_trace(write):
    path = write(TRACE[:-100])

    assert sniff(path) is Kind.EXECUTION_TRACE
    assert isinstance(open_recording(path), ExecutionTrace)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        (Kind.SNAPSHOT, "is a Python pickle, .* read a memory snapshot"),
        (Kind.KINETO, "is a Kineto trace .* read a Kineto trace with memory events"),
        (Kind.STALLOC_LOG, "is a log of STAlloc; .* read a log of STAlloc"),
        (Kind.RMM_LOG, "is a log of RMM; .* read a log of RMM"),
        (Kind.RECORDED_STREAMS, "is recorded .* read recorded allocation streams"),
    ],
)
def test_memory_history_is_no_execution_trace_and_who_reads_it_is_said(write, kind, ending):
    with pytest.raises(TraceError, match=f"{ending}\\.$") as raised:
        open_trace(write(FILES[kind]))

    assert ", while compare, fit, plan, timeline and replay read " in str(raised.value)


def test_table_of_buffers_is_no_execution_trace_and_who_reads_it_is_said(write):
    with pytest.raises(TraceError, match=r"is a table of buffers; .* read a table of buffers"):
        open_trace(write(b"id,lower,upper,size\na,0,1,2\n"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (
            b'{"segments": [[16, 512, 0, "large", [0, 0]]], "events": [["alloc", 16, 512, 0]]}',
            r"is JSON without a list of nodes \(its keys: segments, events\); needed is the JSON",
        ),
        (b"", "is empty"),
        (b"PK\x03\x04", "is a zip archive, such as a torch.save file; needed is the JSON file"),
        (b"\x80\x01]", "is a Python pickle"),
        (b"{}", "or a memory history, such as the pickle"),
        (b"[]", ", or a memory history"),
        (b"\xff\xfe\x00\x00", ", or a memory history"),
        (b"words of no meaning", ", or a memory history"),
    ],
)
def test_what_is_neither_is_named(write, content, what):
    path = write(content)

    assert sniff(path) is None
    with pytest.raises(TraceError, match=what):
        open_recording(path)


@pytest.mark.parametrize("kind", FILES)
def test_mutated_file_is_read_or_is_a_sentence(write, kind):
    generator = random.Random(0)

    for _ in range(300):
        changed = bytearray(FILES[kind])
        for _ in range(generator.randint(1, 3)):
            position = generator.randrange(len(changed))
            if generator.random() < 0.7:
                changed[position] = generator.randrange(256)
            else:
                del changed[position : position + generator.randint(1, 5)]
        try:
            open_recording(write(bytes(changed)))
        except TraceError as error:
            assert str(error).endswith(".")


def test_missing_file_is_a_sentence(tmp_path):
    for read in (open_recording, sniff):
        with pytest.raises(TraceError, match="No such file"):
            read(tmp_path / "absent")


def test_real_traces_are_execution_traces(shared_data):
    files = [*shared_data.glob("traces/*"), *shared_data.glob("workloads/*_et.json.gz")]
    assert {sniff(path) for path in files} == {Kind.EXECUTION_TRACE}
