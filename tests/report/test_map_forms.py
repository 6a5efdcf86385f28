"""The forms of a memory map that are not the page: literal lines, and pictures that open."""

from __future__ import annotations

import json
import struct

import pytest
from made_histories import history

from et_replay.events import Action, BlockState, SegmentState
from et_replay.memory_map import MemoryMap, map_memory
from et_replay.origins import MemoryClass, Origin
from et_replay.report.event_table import event_table
from et_replay.report.heights import Heights
from et_replay.report.perfetto import perfetto_trace
from et_replay.report.plot import plot
from et_replay.report.segments import segments_text

MIB = 2**20
HOSTILE = '</script><script>alert("1")</script>'


@pytest.fixture
def small() -> MemoryMap:
    made = history(
        (Action.ALLOC, 0, 30 * MIB, 0, 7),
        (Action.ALLOC, 1, 60 * MIB, 0, 8),
        (Action.FREE, 0, 30 * MIB, 0, 9),
        origins={0: Origin("aten::mm", ("step",), MemoryClass.ACTIVATION), 1: Origin(HOSTILE)},
    )
    return map_memory(made, "native", 80 * MIB, torch_version="2.14")


def test_csv_has_a_line_for_each_event(small: MemoryMap) -> None:
    heading, *lines = event_table(small).splitlines()
    assert heading.startswith("event,node_id,action,storage,size_bytes,stream,address,")
    assert (
        lines[0] == "0,7,alloc,0,31457280,0,0x7f0000000000,31457280,31457280,activations,aten::mm"
    )
    assert lines[1].startswith("1,8,alloc,1,62914560,0,,31457280,31457280,not known,")
    assert lines[2].startswith("2,9,free,0,31457280,0,0x7f0000000000,0,31457280,activations,")


def test_perfetto_shows_counters_where_they_change_and_the_failure(small: MemoryMap) -> None:
    events = json.loads(perfetto_trace(small))["traceEvents"]
    counters = [(e["ts"], e["args"]) for e in events if e["ph"] == "C"]
    assert counters == [
        (0, {"allocated": 30 * MIB, "reserved but unallocated": 0}),
        (2, {"allocated": 0, "reserved but unallocated": 30 * MIB}),
    ]
    assert [(e["ts"], e["name"]) for e in events if e["ph"] == "i"] == [(1, "out of memory")]


def test_pictures_are_of_the_form_that_was_asked_for(small: MemoryMap) -> None:
    pytest.importorskip("matplotlib")
    picture = plot(small, "png")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (1400, 1000)
    assert b"<svg" in plot(small, "svg")[:500]


def test_heights_leave_out_what_was_never_reserved() -> None:
    made = history((Action.ALLOC, 0, 30 * MIB), (Action.ALLOC, 1, 512))
    segments = map_memory(made, "native", 80 * MIB, torch_version="2.14").segments
    apart = type(segments)(
        segments.start,
        segments.end,
        segments.address * [1, 2],
        segments.size,
        segments.stream,
        segments.pool,
    )
    heights = Heights(apart)
    assert heights.of(apart.address).tolist() == [0, 30 * MIB]
    assert heights.top == 32 * MIB


def test_a_segment_is_drawn_in_equal_parts() -> None:
    blocks = (
        BlockState(0, 24 * MIB, 24 * MIB, 3),
        BlockState(24 * MIB, 23 * MIB, 0, -1),
        BlockState(47 * MIB, MIB // 2, 100, 4),
        BlockState(47 * MIB + MIB // 2, MIB // 2, 0, -1),
    )
    text = segments_text([SegmentState(0, 48 * MIB, 0, False, False, (0, 1), blocks)])
    line = text.splitlines()[1]
    assert line.split()[:7] == ["0x0", "48.0", "MiB", "24.5", "MiB", "large", "pool"]
    assert line.endswith("█" * 24 + "·" * 23 + "▒")
