"""Comparisons: the same events through several allocators, and recorded addresses found again."""

from __future__ import annotations

import json
import lzma
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_histories import recorded_on_h200

from et_replay.comparison import compare, reproduce
from et_replay.errors import UsageError
from et_replay.events import Action, AllocationEvents, MemoryHistory
from et_replay.formats import open_recording, open_trace
from et_replay.program import Mode, build_program, history_of
from et_replay.report.snapshot import snapshot_pickle

MIB = 2**20
TRACES = Path(__file__).resolve().parents[1] / "traces"
WORKLOADS = {"resnet": 2515, "gpt2": 2460, "moe": 6159}


def history(*rows: tuple[Action, int, int]) -> MemoryHistory:
    """Make a history of (action, storage, size) on stream 0, without recorded addresses."""
    action, storage, size = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    events = AllocationEvents(
        action=action.astype(np.int8),
        storage=storage,
        size=size,
        stream=np.zeros(len(rows), dtype=np.int64),
        node_id=np.full(len(rows), -1, dtype=np.int64),
        steps=np.zeros(0, dtype=np.int64),
    )
    return MemoryHistory("test", "recorded streams", events, np.zeros(len(rows), dtype=np.int64))


def small_then_large() -> MemoryHistory:
    """Return the pattern of R04 in PyTorch's devlog: 8 x 16 MiB, all freed, then 4 x 32 MiB."""
    rows = [(Action.ALLOC, k, 16 * MIB) for k in range(8)]
    rows += [(Action.FREE, k, 16 * MIB) for k in range(8)]
    rows += [(Action.ALLOC, 8 + k, 32 * MIB) for k in range(4)]
    return history(*rows)


@pytest.mark.parametrize(
    ("allocator", "reserved"),
    [("native", 256 * MIB), ("expandable", 140 * MIB), ("ideal", 128 * MIB)],
)
def test_the_devlogs_figures_come_out(allocator: str, reserved: int) -> None:
    row = compare(small_then_large(), allocator)
    assert row.statistics.peak_reserved_bytes == reserved
    assert row.statistics.peak_allocated_bytes == 128 * MIB
    assert row.out_of_memory is None


def test_fragmentation_is_what_is_reserved_for_nothing_at_the_peaks() -> None:
    assert compare(small_then_large(), "native").fragmentation == 0.5


def test_a_capacity_that_does_not_suffice_is_named_with_event_and_iteration() -> None:
    row = compare(
        history((Action.ALLOC, 0, 20 * MIB), (Action.ALLOC, 1, 20 * MIB)),
        "native",
        device_memory=30 * MIB,
        iterations=2,
    )
    assert row.out_of_memory is not None
    assert (row.out_of_memory.event, row.failed_iteration) == (1, 1)


def test_iterations_without_a_reset_begin_with_what_the_last_one_left_cached() -> None:
    row = compare(small_then_large(), "native", iterations=3)
    assert row.reserved_by_iteration == (256 * MIB, 256 * MIB, 256 * MIB)


@pytest.mark.parametrize(("warmup", "peak"), [(None, 130), (0, 120), (1, 20), (2, 20)])
def test_peaks_are_those_of_the_iterations_after_the_warmup(warmup: int | None, peak: int) -> None:
    """What was there before goes in the first iteration; 30 MiB came and went before that."""
    rows = [(Action.ALLOC, 0, 100), (Action.ALLOC, 1, 30), (Action.FREE, 1, 30)]
    rows += [(Action.ALLOC, 2, 20), (Action.FREE, 0, 100), (Action.FREE, 2, 20)]
    made = history(*((action, storage, size * MIB) for action, storage, size in rows))
    made = replace(made, events=replace(made.events, steps=np.array([3, 6])))
    row = compare(made, "direct", iterations=2, warmup=warmup)

    assert row.statistics.peak_allocated_bytes == peak * MIB
    assert row.statistics.peak_reserved_bytes == peak * MIB
    assert row.reserved_by_iteration == (0, 0)


def test_what_the_cache_keeps_from_before_the_warmup_is_reserved_after_it() -> None:
    rows = [(Action.ALLOC, 0, 100 * MIB), (Action.ALLOC, 1, 20 * MIB)]
    rows += [(Action.FREE, 0, 100 * MIB), (Action.FREE, 1, 20 * MIB)]
    made = history(*rows)
    made = replace(made, events=replace(made.events, steps=np.array([1, 4])))
    statistics = compare(made, "native", warmup=1).statistics

    assert statistics.peak_allocated_bytes == 20 * MIB
    assert statistics.peak_reserved_bytes == 120 * MIB


def test_growth_from_cycle_to_cycle_shows() -> None:
    """Expandable segments with max_split_size_mb, as in pytorch pull request 193400."""
    rows = [(Action.ALLOC, 0, 64 * MIB)]
    for cycle in range(3):
        first = 3 * cycle + 1
        rows += [
            (Action.ALLOC, first, 91 * MIB),
            (Action.ALLOC, first + 1, 91 * MIB // 2),
            (Action.ALLOC, first + 2, 2 * MIB),
            (Action.FREE, first, 91 * MIB),
            (Action.FREE, first + 1, 91 * MIB // 2),
        ]
    grown = compare(
        history(*rows), "native:max_split_size_mb:128,expandable_segments:True"
    ).statistics
    assert (
        grown.peak_reserved_bytes > compare(history(*rows), "native").statistics.peak_reserved_bytes
    )


def test_a_replay_and_a_comparison_of_a_trace_have_the_same_peak() -> None:
    program = build_program(open_trace(TRACES / "moe_cuda.json.gz"))
    row = compare(history_of(program, Mode.PRE_ALLOCATE), "native")
    assert row.statistics.peak_allocated_bytes == 735304704
    assert row.statistics.peak_reserved_bytes == 748683264


def test_histories_without_addresses_are_not_reproduced() -> None:
    assert reproduce(small_then_large()) is None


@pytest.mark.parametrize(
    "allocator", ["nativ", "native:max_splt_size_mb:3", "expandable:max_split_size_mb:1"]
)
def test_what_there_is_not_is_refused(allocator: str) -> None:
    with pytest.raises(UsageError):
        compare(small_then_large(), allocator)


@pytest.mark.parametrize(("name", "blocks"), WORKLOADS.items())
def test_every_recorded_address_of_a_snapshot_comes_out_again(
    shared_data: Path, name: str, blocks: int
) -> None:
    check = reproduce(open_recording(shared_data / f"workloads/{name}_snapshot.pickle.gz"))
    assert check is not None
    assert (check.compared, check.equal, check.first_difference) == (blocks, blocks, None)


def test_every_recorded_address_comes_out_again_from_a_rebuilt_start(shared_data: Path) -> None:
    check = reproduce(open_recording(shared_data / "snapshots/bcrafton_midlife.pickle"))
    assert check is not None
    assert (check.compared, check.equal) == (2162, 2162)


@pytest.mark.parametrize(
    ("name", "reserved"), [("resnet", 3684696064), ("gpt2", 6079643648), ("moe", 2174746624)]
)
def test_the_jobs_own_peak_reserved_comes_out_to_the_byte(
    shared_data: Path, name: str, reserved: int
) -> None:
    """The truth is `stats_after_3` of the workload's info file."""
    recorded = open_recording(shared_data / f"workloads/{name}_snapshot.pickle.gz")
    row = compare(recorded, "native", torch_version="2.11")
    assert row.statistics.peak_reserved_bytes == reserved


def test_recorded_streams_come_out_again_through_a_snapshot(
    shared_data: Path, tmp_path: Path
) -> None:
    """Snapshots do not hold the device's memory, nor the fraction of it that was set."""
    checked = 0
    for path in sorted(shared_data.glob("allocator/h200/*.json.xz")):
        segments, entries, _ = recorded_on_h200(path)
        recorded = json.loads(lzma.decompress(path.read_bytes()))
        file = tmp_path / f"{path.stem}.pickle"
        file.write_bytes(snapshot_pickle(segments, entries, recorded["spec"]["conf"]))
        fraction = recorded["fraction"] if recorded["fraction"] < 1 else None
        check = reproduce(open_recording(file), None, recorded["total"], fraction)
        assert check is not None, path.name
        assert (check.equal, check.first_difference) == (check.compared, None), path.name
        checked += 1
    assert checked == 19


def test_a_start_state_that_does_not_fit_fails_before_the_first_event(shared_data: Path) -> None:
    recorded = open_recording(shared_data / "snapshots/bcrafton_midlife.pickle")
    row = compare(recorded, "ideal", device_memory=100 * MIB)
    assert row.out_of_memory is not None
    assert (row.out_of_memory.event, row.out_of_memory.node_id) == (None, None)


def test_errors_travel_between_processes() -> None:
    row = compare(small_then_large(), "native", device_memory=100 * MIB)
    again = pickle.loads(pickle.dumps(row))
    assert str(again.out_of_memory) == str(row.out_of_memory)
    assert again.out_of_memory.event == row.out_of_memory.event
    assert again.out_of_memory.capacity == 100 * MIB
