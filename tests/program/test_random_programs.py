"""Random programs over recycled addresses: the program finds every storage there really was."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from program.fake_program import Block, FakeProgram
from program.oracle import Reading
from program.programs import lives_of_any_kind, peak, storages_of
from trace_builder import trace, write_trace

from et_replay.formats import open_trace
from et_replay.program import Mode, Program, allocation_events, build_program

Found = tuple[int, int, int, bool]

seeds = given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random") / "trace.json"


def truth(fake: FakeProgram) -> Counter[Found]:
    """Count (storage id, bytes, last node id, whether it existed before) of what was ever shown."""
    return Counter(
        (fake.storage_id(block), block.proven, block.last_node_id, block.operation < 0)
        for block in fake.blocks
        if block.proven
    )


def build(file: Path, fake: FakeProgram) -> Program:
    return build_program(open_trace(write_trace(file, *fake.specs())))


@seeds
@settings(max_examples=200, deadline=None)
def test_the_oracle_finds_every_allocation(seed: int, steps: int) -> None:
    fake = FakeProgram(seed, steps)

    reading = Reading(json.loads(json.dumps(trace(*fake.specs()))))

    assert truth(fake) == Counter(
        (each.storage_id, each.size, reading.last_node_id(each), each.kind == "input")
        for each in reading.generations
    )


@seeds
@settings(max_examples=300, deadline=None)
@example(seed=0, steps=150)
def test_the_program_finds_every_allocation(file: Path, seed: int, steps: int) -> None:
    fake = FakeProgram(seed, steps)

    program = build(file, fake)

    assert truth(fake) == Counter(lives_of_any_kind(program))


@seeds
@settings(max_examples=200, deadline=None)
def test_every_use_is_of_the_right_allocation(file: Path, seed: int, steps: int) -> None:
    fake = FakeProgram(seed, steps)
    records = {record.id: record for record in fake.records}

    program = build(file, fake)

    block_of: dict[int, Block] = {}
    for number, operation in enumerate(program.operations):
        record = records[operation.call.node.id]
        shown = storages_of(program, (*operation.call.inputs, *operation.call.outputs))
        for storage, block in zip(shown, [*record.given, *record.made], strict=True):
            if block is None:
                assert storage == -1 or program.storages[storage].size == 0
            else:
                assert block_of.setdefault(storage, block) is block
                assert program.storages[storage].operation == block.operation <= number
    assert len(set(map(id, block_of.values()))) == len(block_of)


@seeds
@settings(max_examples=200, deadline=None)
def test_peaks_are_those_of_the_oracle(file: Path, seed: int, steps: int) -> None:
    fake = FakeProgram(seed, steps)
    reading = Reading(json.loads(json.dumps(trace(*fake.specs()))))

    program = build(file, fake)

    for mode in (Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE):
        assert peak(allocation_events(program, mode)) == reading.peak(mode.value)
