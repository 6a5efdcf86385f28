"""Streams that PyTorch's own allocator recorded: addresses, counters and segments are repeated."""

from __future__ import annotations

import gzip
import json
import lzma
from math import floor
from pathlib import Path
from typing import Any

import pytest

from et_replay import _core

H200 = (
    "default_small",
    "default_large",
    "default_mixed",
    "default_emptycache",
    "cap_mixed",
    "cap_large_oom",
)
PROGRAMS = {"2.7.1": True, "2.11.0": True, "2.13.0": False, "2.14.1": False}
SHORT_NAMES = {
    "alloc": "allocation",
    "seg": "segment",
    "active": "active",
    "isplit": "inactive_split",
    "ab": "allocated_bytes",
    "rb": "reserved_bytes",
    "actb": "active_bytes",
    "isb": "inactive_split_bytes",
    "rq": "requested_bytes",
}
TOTALS = {
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
    "sync": "num_sync_all_streams",
    "dalloc": "num_device_alloc",
    "dfree": "num_device_free",
}


def warmed_up(recording: dict[str, Any]) -> _core.Simulation:
    """Return a simulation as it was when the recording began: one block had come and gone."""
    addresses = [event[1] for event in recording["events"] if event[0] == "segment_alloc"]
    simulation = _core.Simulation(
        floor(recording["fraction"] * recording["total"]),
        tie_by_address=True,
        recorded_addresses=[0, *addresses],
    )
    requested = sum(event[2] for event in recording["events"] if event[0] == "alloc")
    simulation.allocate(0, recording["stats"]["requested_bytes.all.allocated"] - requested)
    simulation.free(0)
    simulation.empty_cache()
    simulation.empty_cache()
    return simulation


def replay(simulation: _core.Simulation, recording: dict[str, Any]) -> int:
    """Repeat the requests, hold every address against the recording, and count the failures."""
    marks = {position for position, _ in recording["marks"]}
    storages: dict[int, int] = {}
    failures = 0
    for position, (action, address, size, stream) in enumerate(recording["events"]):
        if position in marks:
            simulation.empty_cache()
        if action == "alloc":
            simulation.allocate(position, size, stream)
            assert simulation.address(position) == address, f"event {position}"
            storages[address] = position
        elif action == "free_requested":
            simulation.free(storages.pop(address))
        elif action == "oom":
            failures += 1
            with pytest.raises(_core.OutOfMemoryError):
                simulation.allocate(position, size, stream)
    return failures


def layout(simulation: _core.Simulation) -> list[list[Any]]:
    """Return the segments in the form of the recordings."""
    return [
        [
            segment["address"],
            segment["total_size"],
            segment["stream"],
            segment["segment_type"],
            [[b["size"], b["requested_size"], b["state"], b["address"]] for b in segment["blocks"]],
        ]
        for segment in simulation.segments()
    ]


@pytest.mark.parametrize("name", H200)
def test_recorded_stream_is_repeated_exactly(name: str, shared_data: Path) -> None:
    path = shared_data / "allocator" / "h200" / f"{name}.json.xz"
    with lzma.open(path) as file:
        recording = json.load(file)
    simulation = warmed_up(recording)
    assert replay(simulation, recording) == recording["ooms"]
    assert simulation.memory_stats() == recording["stats"]
    recorded = [[*segment[:4], segment[6]] for segment in recording["segments"]]
    assert layout(simulation) == recorded


def counters(simulation: _core.Simulation, line: str) -> str:
    """Write the counters that an `S` line has, in its form."""
    stats = simulation.memory_stats()
    words = []
    for word in line.split()[1:]:
        name, value = word.split("=")
        if name in SHORT_NAMES:
            full = f"{SHORT_NAMES[name]}.all"
            parts = (stats[f"{full}.{part}"] for part in ("current", "peak", "allocated", "freed"))
            value = "/".join(map(str, parts))
        elif name in TOTALS:
            value = str(stats[TOTALS[name]])
        words.append(f"{name}={value}")
    return " ".join(["S", *words])


def segment_lines(simulation: _core.Simulation) -> list[str]:
    """Write the segments as `G` lines."""
    lines = []
    for address, total, stream, kind, blocks in layout(simulation):
        live = [block for block in blocks if block[2] == "active_allocated"]
        size, requested = (sum(block[column] for block in live) for column in (0, 1))
        texts = (f"[{b[0]} {b[1]} {'A' if b in live else 'I'}]" for b in blocks)
        lines.append(
            f"G {address:x} {total} st={stream} {kind} exp=0 pool=0,0"
            f" alloc={size} act={size} req={requested} " + " ".join(texts)
        )
    return lines


def run_program(program: dict[str, Any], tie_by_address: bool) -> list[str]:
    """Run a program and return its `A`, `OOM`, `S` and `G` lines; OOM texts are left out."""
    recorded = [line.split() for line in program["output"] if line.startswith("T segment_alloc")]
    expected_counters = iter([line for line in program["output"] if line.startswith("S ")])
    simulation = _core.Simulation(
        program["device_total"],
        tie_by_address=tie_by_address,
        recorded_addresses=[int(words[2], 16) for words in recorded],
    )
    lines = []
    for command in program["program"]:
        verb, *arguments = command.split()
        if verb == "a":
            storage, size, stream = map(int, arguments)
            try:
                simulation.allocate(storage, size, stream)
                lines.append(f"A {storage} {simulation.address(storage):x}")
            except _core.OutOfMemoryError:
                lines.append("OOM")
        elif verb == "f":
            simulation.free(int(arguments[0]))
        elif verb == "e":
            simulation.empty_cache()
        elif verb == "stats":
            lines.append(counters(simulation, next(expected_counters)))
        elif verb == "snap":
            lines += segment_lines(simulation)
    return lines


@pytest.mark.parametrize(("version", "tie_by_address"), PROGRAMS.items())
def test_default_programs_give_the_library_s_output(
    version: str, tie_by_address: bool, shared_data: Path
) -> None:
    path = shared_data / "allocator" / "programs" / f"torch-{version}.json.gz"
    with gzip.open(path) as file:
        programs = [
            program
            for program in json.load(file)
            if not program["conf"] and not program["pending_events"] and not program["pools"]
        ]
    assert programs
    for program in programs:
        expected = [
            line.split()[0] if line.startswith("OOM") else line
            for line in program["output"]
            if line[0] in "AOSG"
        ]
        assert run_program(program, tie_by_address) == expected
