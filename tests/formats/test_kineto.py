"""Kineto traces: their memory events, told apart by address, in the order of time."""

from __future__ import annotations

import json

import pytest
from history_rows import rows

from et_replay.errors import TraceError

CUDA, CPU = 1, 0
STANDING = "Sizes are those of blocks, as rounded; all streams count as one."


def memory(
    time: float, size: int, address: int, device: int = 0, kind: int = CUDA, **args: object
) -> dict:
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": time,
        "args": {
            "Total Reserved": 0,
            "Total Allocated": 0,
            "Bytes": size,
            "Device Id": device,
            "Device Type": kind,
            "Addr": address,
            "Ev Idx": 0,
            **args,
        },
    }


def trace(*events: dict) -> str:
    call = {"ph": "X", "name": "aten::add", "ts": 1, "dur": 2, "args": {"Addr": 5, "Bytes": 6}}
    return json.dumps({"schemaVersion": 1, "traceEvents": [call, *events], "traceName": "t"})


def test_memory_events_are_allocations_and_frees_by_address(read_history):
    history = read_history(
        trace(memory(2, 1024, 64), memory(3, 512, 128), memory(4, -1024, 64), memory(5, 512, 64))
    )

    assert history.kind == "Kineto trace"
    assert history.notes == (STANDING,)
    assert rows(history) == [
        ("ALLOC", 0, 1024, 0, 64),
        ("ALLOC", 1, 512, 0, 128),
        ("FREE", 0, 1024, 0, 64),
        ("ALLOC", 2, 512, 0, 64),
    ]


def test_time_and_then_the_profilers_count_decide_the_order(read_history):
    late = {"Ev Idx": 7}
    history = read_history(
        trace(memory(2, -512, 64, **late), memory(2, 512, 64), memory(1.5, 9, 128, **late))
    )

    assert [row[:3] for row in rows(history)] == [
        ("ALLOC", 0, 9),
        ("ALLOC", 1, 512),
        ("FREE", 1, 512),
    ]


def test_block_from_before_the_trace_is_allocated_first(read_history):
    history = read_history(
        trace(
            memory(1, 512, 64, **{"Total Allocated": 4608, "Total Reserved": 2 << 20}),
            memory(2, -1024, 128),
        )
    )

    assert rows(history) == [
        ("ALLOC", 1, 1024, 0, 128),
        ("ALLOC", 0, 512, 0, 64),
        ("FREE", 1, 1024, 0, 128),
    ]
    assert history.notes == (
        "Blocks freed in it but allocated before it began: 1, of 1024 bytes; they are allocated"
        " before the first event.",
        STANDING,
        "Allocated before it began: 4.00 KiB.",
        "Recorded peak reserved: 2.00 MiB.",
    )


def test_missing_free_is_put_before_the_next_use_of_the_address(read_history):
    history = read_history(trace(memory(1, 512, 64), memory(2, 1024, 64)))

    assert [row[:3] for row in rows(history)] == [
        ("ALLOC", 0, 512),
        ("FREE", 0, 512),
        ("ALLOC", 1, 1024),
    ]
    assert "without a free in between: 1" in history.notes[0]


def test_failed_request_is_out_of_memory(read_history):
    failed = {**memory(2, 4096, 0), "name": "[OutOfMemory]"}

    assert rows(read_history(trace(memory(1, 512, 64), failed)))[1] == (
        *("OUT_OF_MEMORY", -1),
        *(4096, 0, 0),
    )


def test_gpu_with_the_most_events_is_read_unless_another_is_asked_for(read_history):
    text = trace(
        *(memory(n, 512, 64 + n, kind=CPU) for n in range(9)),
        memory(1, 512, 64, device=0),
        memory(1, 512, 64, device=3),
        memory(2, -512, 64, device=3),
    )

    assert len(read_history(text).events) == 2
    assert read_history(text).notes[0] == "Device 3 was read; the trace also has device 0."
    assert len(read_history(text, device=0).events) == 1
    with pytest.raises(TraceError, match="no memory events of device 1"):
        read_history(text, device=1)


def test_cpu_is_read_where_there_is_nothing_else(read_history):
    history = read_history(trace(memory(1, 512, 64, kind=CPU, device=-1)))

    assert len(history.events) == 1
    assert history.notes[0] == "The trace has memory events of the CPU only."


def test_trace_without_memory_events_names_the_option(read_history):
    with pytest.raises(TraceError, match=r"record it with profile_memory=True\.$"):
        read_history(trace())


def test_broken_trace_gives_the_memory_events_that_are_whole(read_history):
    text = trace(memory(1, 512, 64), memory(2, -512, 64), memory(3, 512, 64))

    history = read_history(text[: text.rindex("Addr")])

    assert [row[0] for row in rows(history)] == ["ALLOC", "FREE"]
    assert history.notes[0] == "The file is no valid JSON: 2 memory events could be read in it."


@pytest.mark.parametrize(
    "args", [None, 5, "x", {"Addr": "x"}, {"Bytes": 1e400}, {"Bytes": 1 << 62}, {"Device Id": []}]
)
def test_malformed_memory_event_does_no_harm(read_history, args):
    text = trace(memory(1, 512, 64), {**memory(2, 512, 128), "args": args}).replace("Infinity", "1")

    assert rows(read_history(text))[0] == ("ALLOC", 0, 512, 0, 64)


def test_what_the_profiler_of_the_installed_torch_writes_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    from et_replay.formats import open_recording

    path = tmp_path / "trace.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        kept = torch.ones(1000)
        del kept
    profiler.export_chrome_trace(str(path))

    assert [row[:3] for row in rows(open_recording(path))] == [
        ("ALLOC", 0, 4000),
        ("FREE", 0, 4000),
    ]
