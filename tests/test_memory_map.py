"""Memory maps: what they hold at each event is what the simulator holds there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_histories import Row, history

from et_replay.events import Action, Int64Array, MemoryHistory
from et_replay.formats import open_recording, open_trace
from et_replay.memory_map import Blocks, Segments, map_memory
from et_replay.planning import plan_history
from et_replay.program import build_program, history_of
from et_replay.serving import capacity_for, run_before, simulator_for

MIB = 2**20
ROOT = Path(__file__).resolve().parents[1]
ALLOC, FREE, EMPTY = Action.ALLOC, Action.FREE, Action.EMPTY_CACHE


def alive(columns: Blocks | Segments, row: int) -> dict[int, int]:
    """Return the sizes by address of what is there after an event."""
    here = (columns.start <= row) & (row < columns.end)
    return dict(zip(columns.address[here].tolist(), columns.size[here].tolist(), strict=True))


def totals(columns: Blocks | Segments, rows: int) -> Int64Array:
    change = np.zeros(rows + 2, dtype=np.int64)
    np.add.at(change, columns.start + 1, columns.size)
    np.add.at(change, columns.end + 1, -columns.size)
    total: Int64Array = change.cumsum()[1 : rows + 1]
    return total


def test_a_block_lives_from_its_allocation_to_its_free() -> None:
    made = history((ALLOC, 0, 700), (ALLOC, 1, 512), (FREE, 0, 700), (ALLOC, 0, 100))
    each = map_memory(made, "native", 80 * MIB, torch_version="2.14")
    assert each.blocks.storage.tolist() == [0, 1, 0]
    assert each.blocks.start.tolist() == [0, 1, 3]
    assert each.blocks.end.tolist() == [2, 4, 4]
    assert each.blocks.size.tolist() == [1024, 512, 512]
    assert each.blocks.requested.tolist() == [700, 512, 100]
    assert (each.segments.start.tolist(), each.segments.end.tolist()) == ([0], [4])
    assert each.segments.size.tolist() == [2 * MIB]
    assert each.peak_row == 1


def test_what_does_not_fit_has_no_block() -> None:
    made = history((ALLOC, 0, 30 * MIB), (ALLOC, 1, 60 * MIB), (FREE, 1, 60 * MIB))
    each = map_memory(made, "native", 80 * MIB, torch_version="2.14")
    assert each.blocks.storage.tolist() == [0]
    assert [failure.event for failure in each.failures] == [1]


def test_a_segment_ends_where_the_cache_is_emptied() -> None:
    made = history((ALLOC, 0, 30 * MIB), (FREE, 0, 30 * MIB), (EMPTY, -1, 0), (ALLOC, 1, 512))
    each = map_memory(made, "native", 80 * MIB, torch_version="2.14")
    assert each.segments.start.tolist() == [0, 3]
    assert each.segments.end.tolist() == [2, 4]


@st.composite
def random_rows(draw: Callable[..., object]) -> list[Row]:
    rows: list[Row] = []
    live: dict[int, tuple[int, int]] = {}
    sizes = st.sampled_from([1, 512, 3000, MIB, MIB + 1, 5 * MIB, 11 * MIB, 30 * MIB])
    for storage, choice in enumerate(draw(st.lists(st.integers(0, 9), min_size=1, max_size=25))):
        if choice == 9:
            rows.append((EMPTY, -1, 0))
        elif choice > 5 and live:
            gone = draw(st.sampled_from(sorted(live)))
            rows.append((FREE, gone, *live.pop(gone)))
        else:
            live[storage] = draw(sizes), draw(st.sampled_from([0, 7]))
            rows.append((ALLOC, storage, *live[storage]))
    return rows


@given(
    random_rows(),
    st.sampled_from(["native", "expandable", "direct", "native:max_split_size_mb:20"]),
    st.sampled_from([40 * MIB, 2**40]),
)
def test_at_every_event_the_map_is_the_state_of_the_simulator(
    rows: list[Row], allocator: str, capacity: int
) -> None:
    made = history(*rows)
    each = map_memory(made, allocator, capacity, torch_version="2.14")
    simulator = simulator_for(made, allocator, capacity, torch_version="2.14")
    run_before(simulator, made, allocator)
    for row in range(len(rows)):
        simulator.run(made.events, row, row + 1, keep_going=True)
        state = simulator.segments()
        blocks = {b.address: b.size for s in state for b in s.blocks if b.storage >= 0}
        assert alive(each.blocks, row) == blocks
        assert sum(alive(each.segments, row).values()) == sum(s.size for s in state)


def recordings(shared_data: Path) -> list[MemoryHistory]:
    trace = open_trace(ROOT / "traces" / "moe_cuda.json.gz")
    return [
        open_recording(ROOT / "traces" / "transformer_oom.pickle.gz"),
        open_recording(shared_data / "workloads" / "moe_snapshot.pickle.gz"),
        open_recording(shared_data / "snapshots" / "bcrafton_midlife.pickle"),
        history_of(build_program(trace), None),
    ]


@pytest.mark.parametrize("allocator", ["native", "expandable", "stalloc", "direct", "ideal"])
def test_blocks_and_segments_of_real_jobs_add_up_at_every_event(
    shared_data: Path, allocator: str
) -> None:
    for made in recordings(shared_data):
        plan = plan_history(made) if allocator == "stalloc" else None
        # On its own device, as elsewhere a recorded failure may be served.
        capacity = capacity_for(made, None)
        each = map_memory(made, allocator, capacity, torch_version="2.11", plan=plan)
        rows = len(made.events)
        assert totals(each.blocks, rows).tolist() == each.timeline.allocated.tolist()
        assert totals(each.segments, rows).tolist() == each.timeline.reserved.tolist()
        peak = each.timeline.allocated[each.peak_row]
        assert peak == each.peak_allocated == each.timeline.allocated.max()
        assert each.peak_reserved == each.timeline.reserved.max()
