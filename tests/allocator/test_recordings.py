"""What PyTorch's own allocator did, on a GPU and on a simulated driver, is repeated exactly."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from et_replay.events import Action, AllocationEvents, BlockState
from et_replay.simulation import Simulator

H200 = (
    "cap_large_oom cap_mixed default_emptycache default_large default_mixed default_small"
    " default_streams exp_cap_mixed exp_cap_oom exp_emptycache exp_large exp_mixed exp_small"
    " gc08_cap gc_maxsplit largeseg maxsplit32_cap maxsplit32_large roundup4"
).split()
VERSIONS = ("2.7.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1")
WARM_UP = 10**9  # a storage that no recording has
Link = Callable[[str], Path]


def rows_of(recording: dict[str, Any]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield action, storage, size, stream and recorded address of what the job asked for.

    A request to free that is completed at once is one row; a storage is named by its position.
    """
    events = recording["events"]
    marks = {position for position, _ in recording["marks"]}
    live: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for position, (action, address, size, stream) in enumerate(events):
        if position in marks:
            yield Action.EMPTY_CACHE, -1, 0, 0, 0
        if action == "alloc":
            live[address] = position
            yield Action.ALLOC, position, size, stream, address
        elif action == "free_requested":
            waiting[address] = live.pop(address)
            following = events[position + 1 : position + 2]
            if not following or following[0][:2] != ["free_completed", address]:
                yield Action.FREE_REQUESTED, waiting[address], size, stream, address
        elif action == "free_completed":
            at_once = events[position - 1][:2] == ["free_requested", address]
            verb = Action.FREE if at_once else Action.FREE_COMPLETED
            yield verb, waiting.pop(address), size, stream, address
        elif action == "oom":
            yield Action.OUT_OF_MEMORY, -1, size, stream, 0


def warmed_up(recording: dict[str, Any]) -> Simulator:
    """Return a simulator as it was when the recording began: one block had come and gone."""
    events = recording["events"]
    given = [event[1] for event in events if event[0] in ("segment_alloc", "segment_map")]
    simulator = Simulator(
        f"native:{recording['spec']['conf']}",
        recording["total"],
        torch_version=recording["torch"],
        device_addresses=[0, *given],
        fraction=recording["fraction"],
        record_trace=True,
    )
    requested = sum(event[2] for event in events if event[0] == "alloc")
    simulator.allocate(WARM_UP, recording["stats"]["requested_bytes.all.allocated"] - requested)
    simulator.free(WARM_UP)
    simulator.empty_cache()
    simulator.empty_cache()
    return simulator


def layout(simulator: Simulator) -> list[list[Any]]:
    """Return the segments in the form of the recordings."""
    return [
        [
            segment.address,
            segment.size,
            segment.stream,
            "small" if segment.small else "large",
            list(segment.pool),
            segment.expandable,
            [[b.size, b.requested, block_state(b), b.address] for b in segment.blocks],
        ]
        for segment in simulator.segments()
    ]


def block_state(block: BlockState) -> str:
    if block.storage < 0:
        return "inactive"
    return "active_pending_free" if block.active_only else "active_allocated"


@pytest.mark.parametrize("name", H200)
def test_recorded_stream_is_repeated_exactly(name: str, shared_data: Path) -> None:
    with lzma.open(shared_data / "allocator" / "h200" / f"{name}.json.xz") as file:
        recording = json.load(file)
    simulator = warmed_up(recording)
    before = len(simulator.trace())
    table = np.array(list(rows_of(recording)), dtype=np.int64)
    storage, size, stream, recorded = (np.ascontiguousarray(table[:, c]) for c in range(1, 5))
    events = AllocationEvents(
        table[:, 0].astype(np.int8), storage, size, stream, storage, storage[:0]
    )
    assert np.array_equal(simulator.addresses_of(events), recorded)
    assert simulator.unexpected == []
    stats = simulator.memory_stats()
    assert {name: stats[name] for name in recording["stats"]} == recording["stats"]
    assert layout(simulator) == recording["segments"]
    # Of an oom the address is the device's free memory, which others share.
    happened = [[e.action, e.action != "oom" and e.address, *e[2:4]] for e in simulator.trace()]
    expected = [
        [action, action != "oom" and address, size, stream]
        for action, address, size, stream in recording["events"]
        if action != "snapshot"
    ]
    assert happened[before:] == expected


def run_program(
    program: Path, version: str, memory: int, settings: str, lines: list[str]
) -> list[str]:
    command = [str(program), version, str(memory), settings]
    text = "\n".join([*lines, ""])
    return subprocess.run(
        command, input=text, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def canonical(lines: list[str]) -> list[str]:
    """Return the lines of a program with pending events without what is not defined then.

    That is the order within a run of free_completed, and what follows from it: peaks and totals of
    inactive_split, and the requested size of inactive blocks.
    """
    result: list[str] = []
    for key, group in groupby(lines, key=lambda line: " ".join(line.split()[:2])):
        run = list(group)
        result += sorted(run) if key == "T free_completed" else run
    return [
        re.sub(r"\[(\d+) \d+ I\]", r"[\1 I]", re.sub(r"(isplit|isb)=(\d+)/\S+", r"\1=\2", line))
        for line in result
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_programs_give_every_line_of_the_library(
    version: str, native_program: Link, shared_data: Path
) -> None:
    program = native_program("run_program")
    with gzip.open(shared_data / "allocator" / "programs" / f"torch-{version}.json.gz") as file:
        cases = json.load(file)
    assert len(cases) == 26
    for case in cases:
        lines = run_program(program, version, case["device_total"], case["conf"], case["program"])
        form = canonical if case["pending_events"] else list
        assert form(lines) == form(case["output"]), case["conf"]


def figures(line: str) -> dict[str, int]:
    """Return what a report says of the counters in an `S` line."""
    words = dict(word.split("=") for word in line.split()[1:])
    parts = {name: [int(part) for part in value.split("/")] for name, value in words.items()}
    return {
        "peak_alloc": parts["ab"][1],
        "peak_active": parts["actb"][1],
        "peak_reserved": parts["rb"][1],
        "reserved": parts["rb"][0],
        "allocated": parts["ab"][0],
        "inactive_split": parts["isb"][0],
        "segments": parts["seg"][0],
        "ooms": parts["ooms"][0],
        "retries": parts["retries"][0],
        "dalloc": parts["dalloc"][0],
        "dfree": parts["dfree"][0],
    }


def test_public_reports_have_the_library_s_answers(native_program: Link, shared_data: Path) -> None:
    program = native_program("run_program")
    reports = json.loads((shared_data / "allocator" / "reports-2.14.1.json").read_text())
    assert len(reports) == 21
    for report in reports:
        for answer in report["answers"]:
            settings = answer.pop("conf")
            lines = run_program(
                program, "2.14.1", report["device_total"], settings, [*report["program"], "stats"]
            )
            assert figures(lines[-1]) == answer, f"{report['id']} under {settings!r}"
