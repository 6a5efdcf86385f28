"""What every allocator keeps to, whatever is asked of it, in a table of all that there are."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from et_replay.errors import OutOfMemoryError
from et_replay.events import PlanColumns
from et_replay.simulation import ALLOCATORS, Simulator

KIB = 2**10
MIB = 2**20
POLICIES = (
    *ALLOCATORS,
    "native:max_split_size_mb:24",
    "native:roundup_power2_divisions:4",
    "native:garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
    "expandable:max_split_size_mb:24",
    "stalloc:expandable_segments:True",
)
VERSIONS = ("2.7", "2.12", "2.14")
SIZES = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 30 * MIB),
    st.sampled_from([512, MIB, MIB + 1, 10 * MIB, 20 * MIB, 21 * MIB]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), SIZES, st.sampled_from([0, 0, 0, 4096])),
        st.tuples(st.just("allocate"), SIZES, st.sampled_from([0, 0, 0, 4096])),
        st.tuples(st.just("free"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=80,
)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 60),  # steps name storages by their number
        st.integers(-1, 80 * MIB // 512),
        SIZES,
        st.integers(-5, 39),
        st.integers(1, 100),
        st.sampled_from([0, 0, 0, 4096]),
    ),
    max_size=60,
)


class Live(NamedTuple):
    storage: int
    begin: int
    end: int


def hold_the_contract(simulator: Simulator, live: list[Live]) -> None:
    by_address = sorted(live, key=lambda block: block.begin)
    for block in by_address:
        assert simulator.address(block.storage) == block.begin, "a live block moved"
        assert block.begin % 512 == 0
    for before, after in pairwise(by_address):
        assert before.end <= after.begin, "two live blocks overlap"
    requested = sum(block.end - block.begin for block in live)
    assert requested <= simulator.allocated <= simulator.active <= simulator.reserved
    assert simulator.reserved <= simulator.capacity


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(steps=STEPS, capacity=st.integers(0, 200 * MIB))
def test_contract(
    policy: str, version: str, steps: list[tuple[str, int, int]], capacity: int
) -> None:
    if "per_process_memory_fraction" in policy and version == "2.7":
        policy = "native"  # which has no such option yet
    hold_throughout(Simulator(policy, capacity, torch_version=version), steps)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, steps=STEPS, capacity=st.integers(0, 200 * MIB))
def test_contract_holds_whatever_the_plan(
    rows: list[tuple[int, ...]], steps: list[tuple[str, int, int]], capacity: int
) -> None:
    storage, offset, size, start, length, stream = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    offset = np.where(offset < 0, -1, offset * 512)
    arena = int(np.max(offset + size, initial=0)) + 512
    plan = PlanColumns(storage, offset, size, start, start + length, stream, arena, 40)
    hold_throughout(Simulator("stalloc", capacity, plan=plan), steps)


def hold_throughout(simulator: Simulator, steps: list[tuple[str, int, int]]) -> None:
    live: list[Live] = []
    for storage, (verb, number, stream) in enumerate(steps):
        if verb == "empty":
            simulator.empty_cache()
        elif verb == "free" and live:
            freed = live.pop(number % len(live))
            simulator.free(freed.storage)
            assert simulator.address(freed.storage) == 0
        elif verb == "allocate":
            try:
                simulator.allocate(storage, number, stream)
            except OutOfMemoryError as error:
                figures = simulator.plan_figures()
                arena = 0 if figures is None else figures.arena  # which is taken as a whole
                assert error.requested in (number, arena)
                continue
            begin = simulator.address(storage)
            live.append(Live(storage, begin, begin + number))
        hold_the_contract(simulator, live)
    for block in live:
        simulator.free(block.storage)
    assert simulator.allocated == simulator.active == 0
    simulator.empty_cache()
    assert simulator.reserved == 0, "memory is kept with nothing alive"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_of_the_whole_device_succeeds_and_one_more_byte_fails(policy: str) -> None:
    whole = 160 * MIB
    capacity = whole * 2 if "fraction" in policy else whole
    fraction = 0.5 if "fraction" in policy else None
    Simulator(policy, capacity, fraction=fraction).allocate(0, whole)
    with pytest.raises(OutOfMemoryError):
        Simulator(policy, capacity, fraction=fraction).allocate(0, whole + 1)
