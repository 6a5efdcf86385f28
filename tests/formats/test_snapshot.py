"""Snapshots of every torch version: what they hold, and what is said of what they do not."""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from io import BytesIO
from types import SimpleNamespace

import pytest
from history_rows import blocks, rows
from snapshot_builder import MIB, block, entry, freed, pickled, segment, snapshot

from et_replay.errors import TraceError
from et_replay.events import SegmentState
from et_replay.formats import open_recording

A, B = 64 * MIB, 128 * MIB
NO_HISTORY = (
    "The snapshot has a state but no history (it was recorded without enabled='all'): there is"
    " nothing to replay."
)
DIVISIONS = {str(1 << power): 0 for power in range(16)}

FROM_EMPTY = snapshot(
    [segment(A, block(3 * MIB, requested=3 * MIB - 5), block(17 * MIB, "inactive"))],
    [
        entry("segment_alloc", A, 20 * MIB),
        entry("alloc", A, 3 * MIB - 5),
        entry("alloc", A + 3 * MIB, 100),
        *freed(A + 3 * MIB, 100),
    ],
)


def test_history_from_an_empty_allocator_is_its_allocations_and_frees(read_history):
    history = read_history(FROM_EMPTY)

    assert history.kind == "memory snapshot"
    assert history.segments == ()
    assert history.device_addresses == (A,)
    assert history.notes == ()
    assert rows(history) == [
        ("ALLOC", 0, 3 * MIB - 5, 0, A),
        ("ALLOC", 1, 100, 0, A + 3 * MIB),
        ("FREE", 1, 100, 0, A + 3 * MIB),
    ]
    assert history.events.node_id.tolist() == [-1] * 3
    assert history.events.steps.tolist() == []


@pytest.mark.parametrize(
    "pack",
    [
        pickled,
        lambda content: pickled(content, 2),
        lambda content: gzip.compress(pickled(content)),
        lambda content: lzma.compress(pickled(content)),
        lambda content: json.dumps(content).encode(),
    ],
    ids="protocol-4 protocol-2 gzip xz json".split(),
)
def test_content_decides_how_a_snapshot_is_unpacked(read_history, monkeypatch, pack):
    expected = rows(read_history(FROM_EMPTY))
    packed = pack(FROM_EMPTY)

    assert rows(read_history(packed)) == expected
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(packed)))
    assert rows(open_recording("-")) == expected


def test_free_that_waits_for_a_stream_is_requested_and_completed(read_history):
    content = snapshot(
        [segment(A, block(20 * MIB, "inactive"))],
        [
            entry("segment_alloc", A, 20 * MIB, 7),
            entry("alloc", A, 2 * MIB, 7),
            entry("alloc", A + 2 * MIB, 2 * MIB, 7),
            entry("free_requested", A, 2 * MIB, 7),
            *freed(A + 2 * MIB, 2 * MIB, 7),
            entry("free_completed", A, 2 * MIB, 7),
        ],
    )

    assert [row[:2] for row in rows(read_history(content))] == [
        ("ALLOC", 0),
        ("ALLOC", 1),
        ("FREE_REQUESTED", 0),
        ("FREE", 1),
        ("FREE_COMPLETED", 0),
    ]


def test_failed_requests_tell_what_the_device_has(read_history):
    content = snapshot(
        [segment(A, block(30 * MIB))],
        [
            entry("segment_alloc", A, 30 * MIB),
            entry("alloc", A, 30 * MIB),
            entry("oom", 12 * MIB, 50 * MIB),
            entry("snapshot", 0, 30 * MIB),
            entry("annotate", 0, 0),
        ],
    )

    history = read_history(content)

    assert rows(history)[1:] == [("OUT_OF_MEMORY", 1, 50 * MIB, 0, 0)]
    assert history.device_memory == 42 * MIB


def test_request_that_failed_below_the_devices_free_memory_met_a_limit(read_history):
    content = snapshot(
        [segment(A, block(30 * MIB))],
        [
            entry("segment_alloc", A, 30 * MIB),
            entry("alloc", A, 30 * MIB),
            entry("oom", 1000 * MIB, 50 * MIB),
        ],
    )

    assert read_history(content).device_memory == 30 * MIB


@pytest.mark.parametrize("addresses", [True, False], ids=["2.1", "2.0"])
@pytest.mark.parametrize("trace", [[], [entry("free_completed", A, 8)], [entry("snapshot", 0, 5)]])
def test_state_without_history_is_kept_as_it_is(read_history, addresses, trace):
    parts = (
        block(3 * MIB),
        block(2 * MIB, "inactive", 9),
        block(15 * MIB, "active_pending_free", 7),
    )
    history = read_history(snapshot([segment(A, *parts, addresses=addresses)], trace))

    assert len(history.events) == 0
    assert history.notes == (NO_HISTORY,)
    (start,) = history.segments
    assert (start.address, start.size, start.small, start.pool) == (A, 20 * MIB, False, (0, 0))
    assert [(b.size, b.requested, b.storage, b.active_only) for b in start.blocks] == [
        (3 * MIB, 3 * MIB, 0, False),
        (2 * MIB, 9, -1, False),
        (15 * MIB, 7, 1, True),
    ]


def test_single_event_without_a_state_is_a_history(read_history):
    history = read_history(snapshot([], [entry("alloc", A, 512)]))

    assert rows(history) == [("ALLOC", 0, 512, 0, A)]
    assert NO_HISTORY not in history.notes


def test_single_failure_without_a_state_is_a_history(read_history):
    history = read_history(snapshot([], [entry("oom", 12 * MIB, 50 * MIB)]))

    assert rows(history) == [("OUT_OF_MEMORY", 0, 50 * MIB, 0, 0)]
    assert history.notes == ()


def test_single_free_without_a_state_is_a_history_of_frees_only(read_history):
    notes = read_history(snapshot([], [entry("free_completed", A, 512)])).notes

    assert notes[0] == "The history has no allocation: it shows frees only."
    assert NO_HISTORY not in notes


@pytest.mark.parametrize("segments", [[], [segment(A, block(20 * MIB))]])
def test_events_that_are_no_request_are_named(read_history, segments):
    history = read_history(snapshot(segments, [entry("novel", A, 512), entry("annotate", 0, 0)]))

    assert len(history.events) == 0
    assert history.notes == (
        "The history has no allocation and no free: its entries are 'annotate', 'novel': there is"
        " nothing to replay.",
    )


def test_list_of_segments_is_a_snapshot_too(read_history):
    assert blocks(read_history(pickled([segment(A, block(20 * MIB))]))) == [(A, 20 * MIB, 0)]


def test_device_with_the_most_events_is_read_unless_another_is_asked_for(read_history):
    one = segment(A, block(20 * MIB))
    two = segment(B, block(20 * MIB), device=2)
    content = snapshot(
        [two, one],
        [entry("segment_alloc", A, 20 * MIB), entry("alloc", A, 20 * MIB)],
        [],
        [
            entry("segment_alloc", B, 20 * MIB),
            *([entry("alloc", B, 1), *freed(B, 1)] * 2),
            entry("alloc", B, 20 * MIB),
        ],
    )

    assert read_history(content).device_addresses == (B,)
    assert read_history(content).notes == ("Device 2 was read; the snapshot also has device 0.",)
    assert rows(read_history(content, device=0)) == [("ALLOC", 0, 20 * MIB, 0, A)]
    with pytest.raises(TraceError, match=r"has nothing of device 1, only of 0, 2\.$"):
        read_history(content, device=1)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": ""}, ""),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "expandable_segments": True},
            "max_split_size_mb:64",
        ),
        (
            {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "max_split_size": 64 * MIB,
                "garbage_collection_threshold": 0.75,
                "expandable_segments": True,
                "roundup_power2_divisions": DIVISIONS,
            },
            "max_split_size_mb:64,garbage_collection_threshold:0.75,expandable_segments:True",
        ),
        (
            {"roundup_power2_divisions": dict.fromkeys(DIVISIONS, 4)},
            "roundup_power2_divisions:4",
        ),
        (
            {"roundup_power2_divisions": {**dict.fromkeys(DIVISIONS, 1), "2": 8}},
            "roundup_power2_divisions:[1:1,2:8,"
            + ",".join(f"{1 << power}:1" for power in range(2, 16))
            + "]",
        ),
    ],
)
def test_settings_are_the_string_or_what_the_fields_say(read_history, fields, text):
    assert read_history({**FROM_EMPTY, "allocator_settings": fields}).settings == text


def test_mapped_segments_tell_their_setting_where_it_was_not_recorded(read_history):
    content = snapshot([segment(A, block(20 * MIB), is_expandable=True)])

    assert read_history(content).settings == "expandable_segments:True"


@pytest.mark.parametrize(
    ("others", "top", "version"),
    [
        ({}, {}, ""),
        ({"time_us": 1}, {}, "2.2"),
        ({"time_us": 1}, {"allocator_settings": {}}, "2.3"),
        ({}, {"external_annotations": []}, "2.5"),
        ({"compile_context": "N/A"}, {}, "2.6"),
        ({"user_metadata": ""}, {}, "2.9"),
        ({"user_metadata": "", "pool_id": (0, 0)}, {}, "2.12"),
        ({"user_metadata": "", "pool_id": (0, 0)}, {"host_traces": []}, "2.14"),
    ],
)
def test_fields_tell_the_oldest_version_that_wrote_them(read_history, others, top, version):
    trace = [{**each, **others} for each in FROM_EMPTY["device_traces"][0]]

    assert read_history({**FROM_EMPTY, **top, "device_traces": [trace]}).torch_version == version


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (5, "expected a dict at a memory snapshot, got 5"),
        ({}, "without segments and events"),
        ({"segments": 5}, "expected a list at segments, got 5"),
        (snapshot([], 5), r"expected a list at device_traces\[0\], got 5"),
        (snapshot([], [5]), r"expected an entry at device_traces\[0\]\[0\], got 5"),
        (snapshot([], [{"action": 1}]), "expected an entry"),
        (
            snapshot([], [entry("alloc", "x", 1)]),
            r"expected a number at device_traces\[0\]\[0\]\.addr, got 'x'",
        ),
        (
            snapshot([], [entry("alloc", 1 << 63, 1)]),
            r"0 to 9223372036854775807 at device_traces\[0\]\[0\]\.addr, got 9223372036854775808",
        ),
        (
            snapshot([], [entry("alloc", 1, -1)]),
            r"expected 0 to 2305843009213693952 at device_traces\[0\]\[0\]\.size, got -1\.",
        ),
        (snapshot([], [entry("alloc", 1, (1 << 61) + 1)]), r"\.size, got 2305843009213693953"),
        (snapshot([], [entry("alloc", 1, "x")]), r"device_traces\[0\]\[0\]\.size, got 'x'"),
        (snapshot([], [entry("alloc", 1, 1, -7)]), r"device_traces\[0\]\[0\]\.stream, got -7"),
        (snapshot([], [entry("oom", -1, 1)]), r"device_traces\[0\]\[0\]\.device_free, got -1"),
        (
            snapshot([], [entry("alloc", 1, 1, pool_id=(0, 1 << 32))]),
            r"0 to 4294967295 at device_traces\[0\]\[0\]\.pool_id, got 4294967296",
        ),
        (
            snapshot([segment(A, block(MIB), segment_pool_id=(1 << 31, 0))]),
            r"0 to 2147483647 at segments\[0\]\.segment_pool_id, got 2147483648",
        ),
        (snapshot([segment(A, block((1 << 61) + 1))]), r"at segments\[0\]\.total_size, got 23"),
        (snapshot([], [entry("alloc", 1, 1, pool_id=5)]), "a pair at"),
        (snapshot([5]), r"expected a dict at segments\[0\], got 5"),
        (snapshot([{}]), r"expected a list at segments\[0\]\.blocks, got NoneType"),
        (snapshot([segment(A, block(MIB), device="cuda")]), "number at .*device, got 'cuda'"),
        (snapshot([segment(A, block(MIB), total_size=2 * MIB)]), "do not fill its 2097152 bytes"),
        (snapshot([segment(A, block(MIB), blocks=[5])]), r"dict at segments\[0\]\.blocks\[0\]"),
        (snapshot([segment(A, {**block(MIB), "address": 5})]), "not where the one before ends"),
        (snapshot([segment(A, block(MIB), blocks=[block(0)])]), "not where the one before ends"),
        (snapshot([segment(A, block(2 * MIB)), segment(A + MIB, block(MIB))]), "overlapping"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_place(read_history, content, what):
    with pytest.raises(TraceError, match=what) as raised:
        read_history(pickled(content))

    assert str(raised.value).endswith(".")


def test_broken_json_snapshot_is_a_sentence(read_history):
    with pytest.raises(TraceError, match="broken JSON"):
        read_history(json.dumps(FROM_EMPTY)[:-9])


REAL = {
    "snapshots/bcrafton_midlife.pickle": (4324, 96, 447, 0, "2.9"),
    "snapshots/sketchkv2_one_event.pickle": (0, 259, 839, 0, "2.3"),
    "snapshots/yiyi_2023_no_address.pickle": (0, 257, 785, 0, ""),
    "snapshots/yiyi_2023_oom.pickle": (0, 176, 460, 0, ""),
    "workloads/gpt2_snapshot.pickle.gz": (4689, 0, 0, 76, "2.9"),
    "workloads/moe_snapshot.pickle.gz": (11742, 0, 0, 80, "2.9"),
    "workloads/resnet_snapshot.pickle.gz": (4546, 0, 0, 109, "2.9"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_snapshot_gives_its_events_and_its_start(shared_data, name):
    history = open_recording(shared_data / name)
    live = sum(segment_block.storage >= 0 for segment_block in _blocks(history.segments))

    assert REAL[name] == (
        len(history.events),
        len(history.segments),
        live,
        len(history.device_addresses),
        history.torch_version,
    )
    assert (NO_HISTORY in history.notes) == (len(history.events) == 0)


def _blocks(segments: tuple[SegmentState, ...]):
    return [each for one in segments for each in one.blocks]


def test_events_are_dated_where_all_entries_are(read_history):
    trace = [entry("alloc", 4 * MIB, 512), *freed(4 * MIB, 512), entry("alloc", 4 * MIB, 700)]
    state = [segment(4 * MIB, block(1024, requested=700), block(2 * MIB - 1024, "inactive"))]
    dated = [{**each, "time_us": 1_000_000 + number} for number, each in enumerate(trace)]

    history = read_history(pickled(snapshot(state, dated)))
    assert history.times.tolist() == [1_000_000, 1_000_001, 1_000_003]
    assert read_history(pickled(snapshot(state, trace))).times.tolist() == []
