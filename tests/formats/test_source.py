"""Where the text comes from: plain, packed, piped, and what cannot be read at all."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from trace_builder import T, operator, trace

from et_replay.errors import TraceError
from et_replay.formats import open_trace

TEXT = json.dumps(trace(operator(5, "aten::add", 2, [T(3, 4, 0, 6, 4)], [T(5, 6, 0, 6, 4)])))
NODES = 3


@pytest.fixture
def write(tmp_path: Path):
    """Write bytes under a name that says nothing about them."""

    def write(content: bytes, name: str = "trace.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    "packed",
    [
        TEXT.encode(),
        gzip.compress(TEXT.encode()),
        zstandard.compress(TEXT.encode()),
        lzma.compress(TEXT.encode()),
        gzip.compress(TEXT[:300].encode()) + gzip.compress(TEXT[300:].encode()),
        zstandard.compress(TEXT[:300].encode()) + zstandard.compress(TEXT[300:].encode()),
        lzma.compress(TEXT[:300].encode()) + lzma.compress(TEXT[300:].encode()),
        gzip.compress(TEXT.encode()) + b"\0" * 512,
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("utf-16"),
        b"\n\n  " + TEXT.encode() + b"\n",
    ],
    ids="plain gzip zstd xz gzip-parts zstd-parts xz-parts gzip-padded mark utf-16 blank".split(),
)
@pytest.mark.parametrize("strict", [False, True])
def test_content_and_not_the_name_decides_how_a_file_is_unpacked(write, packed, strict):
    read = open_trace(write(packed), strict=strict)

    assert len(read) == NODES
    assert read.notes == ()


def test_source_is_the_path_as_it_was_given(write):
    path = write(TEXT.encode())

    assert open_trace(str(path)).source == open_trace(path).source == str(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress, lzma.compress])
def test_dash_is_standard_input(monkeypatch, pack):
    stream = SimpleNamespace(buffer=io.BytesIO(pack(TEXT.encode())))
    monkeypatch.setattr(sys, "stdin", stream)

    read = open_trace("-")

    assert len(read) == NODES
    assert read.source == "standard input"


def test_pipe_that_cannot_be_mapped_is_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    child = os.fork()
    if child == 0:
        path.write_bytes(TEXT.encode())
        os._exit(0)

    assert len(open_trace(path)) == NODES
    os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["gzip", "zstd", "xz"])
def test_packed_file_that_breaks_off_gives_what_was_unpacked(write, kind):
    nodes = [operator(5 + i, f"aten::op{i * 7919}", 2, [T(i, i, 0, 6, 4)]) for i in range(20_000)]
    text = json.dumps(trace(*nodes)).encode()
    pack = {"gzip": gzip.compress, "zstd": zstandard.compress, "xz": lzma.compress}[kind]
    packed = pack(text)

    read = open_trace(write(packed[: len(packed) * 3 // 4]))

    assert 10_000 < len(read) < 20_000
    assert read.notes[0] == f"The {kind} stream breaks off."
    assert read.notes[1].startswith("The file breaks off: ")
    with pytest.raises(TraceError, match=f"is damaged: The {kind} stream breaks off"):
        open_trace(write(packed[: len(packed) * 3 // 4]), strict=True)


def test_gzip_damaged_in_the_middle_gives_what_comes_before(write):
    nodes = [operator(5 + i, f"aten::op{i * 7919}", 2) for i in range(20_000)]
    packed = bytearray(gzip.compress(json.dumps(trace(*nodes)).encode()))
    middle = len(packed) // 2
    packed[middle : middle + 64] = b"\xff" * 64

    read = open_trace(write(bytes(packed)))

    assert 5_000 < len(read) < 15_000
    assert read.notes[0].startswith("The gzip stream is damaged near byte ")


def test_gzip_with_a_wrong_checksum_gives_everything_and_says_so(write):
    packed = bytearray(gzip.compress(TEXT.encode()))
    packed[-8] ^= 1

    read = open_trace(write(bytes(packed)))

    assert len(read) == NODES
    assert read.notes[0].startswith("The gzip stream is damaged near byte ")


def test_rubbish_after_a_gzip_stream_is_ignored_and_said(write):
    read = open_trace(write(gzip.compress(TEXT.encode()) + b"rubbish"))

    assert len(read) == NODES
    assert read.notes == ("The gzip stream goes on for 7 bytes after its end.",)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python unpacks zstd itself from 3.14 on")
def test_zstd_without_its_package_is_a_sentence_with_the_pip_line(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(TraceError, match=r"pip install zstandard"):
        open_trace(write(zstandard.compress(TEXT.encode())))


def test_missing_file_and_folder_are_sentences(tmp_path):
    with pytest.raises(TraceError, match=r"^Cannot read .*absent: No such file or directory\.$"):
        open_trace(tmp_path / "absent")
    with pytest.raises(TraceError, match=r"is a folder; give the trace file in it\.$"):
        open_trace(tmp_path)
    with pytest.raises(TraceError, match=r"^Cannot read "):
        open_trace("null\0byte")


def test_file_without_permission_is_a_sentence(write):
    path = write(TEXT.encode())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")

    with pytest.raises(TraceError, match="Permission denied"):
        open_trace(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty: record it again; needed is the JSON file that PyTorch's Exec"),
        (b"  \n ", "is empty"),
        (gzip.compress(b""), "is empty"),
        (json.dumps({"traceEvents": []}).encode(), "is a Kineto trace of the PyTorch profiler"),
        (
            b'{"deviceProperties": [%b], "traceEvents": []}' % b", ".join([b'{"id": 0}'] * 999),
            "is a Kineto trace of the PyTorch profiler",
        ),
        (b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "na', "is a Kineto trace"),
        (pickle.dumps({"segments": []}), "is a Python pickle, such as a CUDA memory snapshot"),
        (gzip.compress(pickle.dumps({"segments": []})), "is a Python pickle"),
        (b'{"segments": [], "device_traces": []}', "is a CUDA memory snapshot"),
        (b"\x0b\n\x050.0.4\x10\x01" + b"\x20\x0a\x04name" * 9, "is a Chakra trace in protobuf"),
        (b"\x7fELF\x00\x00\x01", "is a binary file"),
        (bytes(range(256)), "is a binary file"),
        (lzma.compress(b""), "is empty"),
        (bz2.compress(TEXT.encode()), "is compressed with bzip2"),
        (zlib.compress(TEXT.encode()), "needed is the JSON file"),
        (b"PK\x03\x04rest", "is a zip archive"),
        (b"SQLite format 3\x00", "is a database"),
        (b'{"a": 1, "b": 2}', r"is JSON without a list of nodes \(its keys: a, b\)"),
        (b"{}", r"its keys: none"),
        (b"[1, 2]", "is not a JSON object"),
        (b"12", "is not a JSON object"),
        (b"hello", "is not JSON and holds no node of a trace"),
        (b'{"schema": "1.1.1", "nodes": []}', "has no node of an execution trace"),
        (b'{"nodes": 5}', "has no node of an execution trace"),
        (b'{"nodes": {"1": {"id": 1}}}', "has no node of an execution trace"),
        (b'{"nodes": [{"id": 1, "name": "vertex"}], "links": []}', "has no node of an execution"),
        (b'{"nodes": [1, "a", null, []]}', "has no node of an execution trace"),
        (b'{"schema": "1.1.1", "nodes": [{"id": 2, "na', "holds no node of a trace"),
        (b"[" * 100_000, "is not a JSON object"),
        (b'{"nodes": ' + b"[" * 100_000, "holds no node of a trace"),
        (b'{"a":' * 100_000, "holds no node of a trace"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_wrong_file_is_named_and_the_right_one_too(write, content, what, strict):
    path = write(content)

    with pytest.raises(TraceError, match=what) as raised:
        open_trace(path, strict=strict)

    assert str(raised.value).startswith(str(path))
    assert str(raised.value).endswith(".")
