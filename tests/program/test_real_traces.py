"""Real traces: the program agrees with the oracle, events pair up, the peak is the job's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program.oracle import Reading
from program.oracle_nodes import load
from program.programs import lives_of_any_kind, never_freed, operation_ids, peak

from et_replay.formats import open_trace
from et_replay.program import (
    Mode,
    StorageKind,
    allocation_events,
    build_program,
    select_window,
    windows,
)

WORKLOADS = ["resnet", "gpt2", "moe"]
TRACES = [
    "traces/chakra_allgather_1.0.2.json.gz",
    "traces/hta_simple_add_1.0.1.json.gz",
    "traces/param_gpt2_1.1.0.json.gz",
    "traces/param_linear_1.0.1.json.gz",
    "traces/param_pt2_1.1.1.json",
    "traces/param_resnet_1.0.3.json.gz",
    "traces/param_resnet_1.1.0.json.gz",
    "traces/param_resnet_1.1.1.json.gz",
    *(f"workloads/{name}_et.json.gz" for name in WORKLOADS),
]
TOO_LONG_FOR_THE_ORACLE = TRACES[2:3]
LIBRARY_WORKSPACES = 2 * 32 * 2**20


@pytest.mark.parametrize("name", TRACES)
def test_events_pair_up_and_lazy_needs_no_more_than_pre(shared_data: Path, name: str) -> None:
    trace = open_trace(shared_data / name)

    for window in windows(trace):
        program = build_program(trace, window)
        assert not [note for note in program.notes if "damaged" in note or "lost" in note]
        pre = allocation_events(program, Mode.PRE_ALLOCATE)
        lazy = allocation_events(program, Mode.LAZY_ALLOCATE)

        assert peak(lazy) <= peak(pre)
        assert never_freed(lazy) == set()
        assert never_freed(pre) == {
            index
            for index, each in enumerate(program.storages)
            if each.kind is StorageKind.INPUT and program.on_device(each)
        }
        assert [each.last_node_id for each in program.storages] == list(
            program.storage_to_last_node_id
        )
        for each in program.storages:
            assert each.first_node_id <= each.last_node_id or each.kind.name == "PRODUCED"
            assert each.operation < len(program.operations)


@pytest.mark.parametrize("name", TRACES)
def test_nothing_is_seen_after_its_last_node(shared_data: Path, name: str) -> None:
    program = build_program(open_trace(shared_data / name))

    for operation in program.operations:
        for index in (*operation.call.inputs, *operation.call.outputs):
            if index >= 0:
                last = program.tensor_to_last_node_id[index]
                storage = program.tensors[index].storage
                assert operation.call.node.id <= last <= program.storage_to_last_node_id[storage]


@pytest.mark.parametrize("name", [each for each in TRACES if each not in TOO_LONG_FOR_THE_ORACLE])
def test_storages_are_those_of_the_oracle(shared_data: Path, name: str) -> None:
    trace = open_trace(shared_data / name)
    window = select_window(trace, None)
    end = int(trace.ids[window.end]) if window.end < len(trace) else 1 << 62
    expected = Reading(load(shared_data / name), int(trace.ids[window.begin]), end)

    program = build_program(trace, window)

    assert lives_of_any_kind(program) == sorted(
        (each.storage_id, each.size, expected.last_node_id(each), each.kind == "input")
        for each in expected.generations
    )
    assert operation_ids(program) == [expected.calls[at].id for at in expected.operations]
    assert program.device == expected.device
    for mode in (Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE):
        assert peak(allocation_events(program, mode)) == expected.peak(mode.value)


@pytest.mark.parametrize("name", WORKLOADS)
def test_pre_allocate_peaks_as_the_job_did(shared_data: Path, name: str) -> None:
    info = json.loads((shared_data / "workloads" / f"{name}_info.json").read_text())
    trace = open_trace(shared_data / "workloads" / f"{name}_et.json.gz")

    program = build_program(trace, select_window(trace, "last"))

    truth = info["peak_alloc_1iter"] - LIBRARY_WORKSPACES
    found = peak(allocation_events(program, Mode.PRE_ALLOCATE))
    assert abs(found - truth) <= 0.02 * truth
