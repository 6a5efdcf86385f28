"""Written snapshots: PyTorch's tools accept them, and reading one back gives the same history."""

from __future__ import annotations

import dataclasses
import pickle
import pickletools

import pytest
from history_rows import rows

from et_replay.events import BlockState, SegmentState, TraceEntry
from et_replay.formats import open_recording
from et_replay.formats.allocator_settings import settings_as_fields, settings_from_fields
from et_replay.formats.snapshot_document import SnapshotDocument
from et_replay.formats.source import read_source
from et_replay.report.snapshot import snapshot_pickle

MIB = 1 << 20
A, B = 64 * MIB, 128 * MIB
SEGMENTS = [
    SegmentState(
        *(A, 20 * MIB, 0, False, False, (0, 0)),
        (
            BlockState(A, 3 * MIB, 3 * MIB - 5, 0),
            BlockState(A + 3 * MIB, 2 * MIB, 2 * MIB, 1, active_only=True),
            BlockState(A + 5 * MIB, 15 * MIB, 0, -1),
        ),
    ),
    SegmentState(*(B, 2 * MIB, 5, True, True, (3, 0)), (BlockState(B, 2 * MIB, 9, -1),)),
]
ENTRIES = [
    TraceEntry("segment_alloc", A, 20 * MIB, 0),
    TraceEntry("alloc", A, 3 * MIB - 5, 0),
    TraceEntry("alloc", A + 3 * MIB, 2 * MIB, 0),
    TraceEntry("free_requested", A + 3 * MIB, 2 * MIB, 0),
    TraceEntry("segment_map", B, 2 * MIB, 5, (3, 0)),
    TraceEntry("alloc", B, 9, 5, (3, 0)),
    TraceEntry("free_requested", B, 9, 5, (3, 0)),
    TraceEntry("free_completed", B, 9, 5, (3, 0)),
    TraceEntry("oom", 4 * MIB, 80 * MIB, 0),
]
# what the unpickler of PyTorch's viewer, in the browser, knows
VIEWER_OPCODES = {
    *("APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT"),
    *("BINUNICODE", "DICT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1"),
    *("LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO"),
    *("SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}


def test_reading_back_gives_the_events_and_the_setting(tmp_path):
    path = tmp_path / "snapshot.pickle"

    path.write_bytes(snapshot_pickle(SEGMENTS, ENTRIES, "max_split_size_mb:64"))
    history = open_recording(path)

    assert history.settings == "max_split_size_mb:64"
    assert history.segments == ()
    assert history.pools == ((3, 0),)
    assert history.device_memory == 26 * MIB
    assert history.device_addresses == (A, B)
    assert [row[:3] for row in rows(history)] == [
        ("ALLOC", 0, 3 * MIB - 5),
        ("ALLOC", 1, 2 * MIB),
        ("FREE_REQUESTED", 1, 2 * MIB),
        ("POOL_BEGIN", 3 * 2**32, 0),
        ("ALLOC", 2, 9),
        ("FREE", 2, 9),
        ("OUT_OF_MEMORY", 3, 80 * MIB),
    ]


def test_segments_are_summed_up_as_torch_does():
    content = pickle.loads(snapshot_pickle(SEGMENTS, ENTRIES))
    first, second = content["segments"]

    assert first["allocated_size"] == 3 * MIB
    assert first["active_size"] == 5 * MIB
    assert first["requested_size"] == 5 * MIB - 5
    assert [block["state"] for block in first["blocks"]] == [
        *("active_allocated", "active_pending_free", "inactive"),
    ]
    assert (second["segment_type"], second["segment_pool_id"]) == ("small", (3, 0))
    assert content["device_traces"][0][-1]["device_free"] == 4 * MIB


def test_memory_viz_of_the_installed_torch_accepts_it():
    viz = pytest.importorskip("torch.cuda._memory_viz")

    def load():
        return pickle.loads(snapshot_pickle(SEGMENTS, ENTRIES))

    assert "total_reserved: 22.0MiB" in viz.segsum(load())
    assert "9 entries" in viz.trace(load())
    assert "80.0MiB requested, 4.0MiB free" in viz.trace(load())
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "<!DOCTYPE html>" in plot(load())
    assert viz.trace_plot(load(), plot_segments=True)
    assert viz.trace_plot(load(), filter_freed=True)
    unformatted = {"format_flamegraph": lambda text: text}
    assert "active_allocated" in viz.segments(load(), **unformatted)
    assert "stream_0" in viz.memory(load(), **unformatted)
    assert viz.compare(load()["segments"], load()["segments"], **unformatted) == ""


def test_viewer_in_the_browser_knows_every_opcode():
    used = {opcode.name for opcode, _, _ in pickletools.genops(snapshot_pickle(SEGMENTS, ENTRIES))}

    assert used <= VIEWER_OPCODES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "expandable_segments:True,garbage_collection_threshold:0.8",
        "max_split_size_mb:64, roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "roundup_power2_divisions:16",
    ],
)
def test_settings_come_back_from_the_fields_alone(text):
    fields = settings_as_fields(text)
    silent = settings_from_fields({**fields, "PYTORCH_CUDA_ALLOC_CONF": ""})
    spoken = settings_from_fields(fields)

    assert spoken.text == text
    assert dataclasses.replace(silent, text=text) == spoken


@pytest.mark.parametrize("name", ["gpt2", "moe", "resnet"])
def test_real_history_survives_writing_and_reading(shared_data, tmp_path, name):
    source = shared_data / "workloads" / f"{name}_snapshot.pickle.gz"
    document, path = SnapshotDocument.read(read_source(source)), tmp_path / "snapshot.pickle"

    path.write_bytes(snapshot_pickle(document.segments(0), document.entries(0)))
    one, two = open_recording(source), open_recording(path)

    assert rows(one) == rows(two)
    assert one.device_addresses == two.device_addresses


def test_rebuilt_start_survives_writing_and_reading(shared_data, tmp_path):
    source = shared_data / "snapshots/bcrafton_midlife.pickle"
    document, path = SnapshotDocument.read(read_source(source)), tmp_path / "snapshot.pickle"

    path.write_bytes(snapshot_pickle(document.segments(0), document.entries(0)))

    assert open_recording(path).segments == open_recording(source).segments
    assert rows(open_recording(path)) == rows(open_recording(source))
