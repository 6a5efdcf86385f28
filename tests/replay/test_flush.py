"""Flushes at a device memory threshold: what goes before which operation, and comes again."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import MIB, call, floats, integers, run, see, values_seen
from trace_builder import NodeSpec, T

from et_replay.errors import UsageError
from et_replay.program import Mode, Program
from et_replay.replay.result import Flushes

PRE, LAZY = Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE
DEVICES = ["cpu", "meta"]
SIDE = 2048
MATRIX = SIDE * SIDE * 4
"""16 MiB: such a tensor has a segment of its own, so that device memory is used to the byte."""


def add(id: int, one: int, other: int, result: int) -> NodeSpec:
    """Add two matrices, named by the numbers of their storages."""
    inputs = [floats(one, SIDE, SIDE), floats(other, SIDE, SIDE), 1]
    return call(id, "add.Tensor", inputs, [floats(result, SIDE, SIDE)])


def idle_weight(folder: Path) -> Program:
    """Return a program whose weight 1 is idle in the middle: live after each operation are

    1 + 2 = 3   weight 1, 3
    3 + 4 = 5   weight 1, 5     with 3 and 4 at the same time: four matrices
    1 + 5 = 6
    """
    return program_of(folder, add(10, 1, 2, 3), add(11, 3, 4, 5), add(12, 1, 5, 6))


def flushed(program: Program, device: str, threshold: float, **options: int) -> Flushes:
    result = run(program, LAZY, device, device_memory_threshold=threshold, **options)
    assert result.coverage.reasons == []
    assert result.out_of_memory is None
    return result.flushes


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_next_operation_does_not_need_goes_and_comes_again(
    tmp_path: Path, device: str
) -> None:
    program = idle_weight(tmp_path)

    result = run(program, LAZY, device, device_memory=4 * MATRIX, device_memory_threshold=0.375)

    assert result.flushes == Flushes(count=1, freed=MATRIX, recreated=MATRIX)
    assert result.memory.allocated == 3 * MATRIX
    assert run(program, LAZY, device).memory.allocated == 4 * MATRIX
    assert run(program, PRE, device).memory.allocated == 5 * MATRIX


@pytest.mark.parametrize("device", DEVICES)
def test_a_threshold_lets_lazy_complete_where_pre_and_lazy_run_out_of_memory(
    tmp_path: Path, device: str
) -> None:
    program, size = idle_weight(tmp_path), 3 * MATRIX

    pre = run(program, PRE, device, device_memory=size)
    lazy = run(program, LAZY, device, device_memory=size)
    flushing = run(program, LAZY, device, device_memory=size, device_memory_threshold=0.5)

    assert pre.out_of_memory is not None and pre.out_of_memory.node_id == 10
    assert lazy.out_of_memory is not None and lazy.out_of_memory.node_id == 11
    assert flushing.out_of_memory is None
    assert flushing.memory.reserved == size


@pytest.mark.parametrize(
    ("allocated_at_most", "count"),
    [(2 * MATRIX, 0), (2 * MATRIX - 1, 1), (MATRIX, 1), (MATRIX - 1, 2)],
)
def test_a_flush_fires_when_more_than_the_threshold_is_allocated(
    tmp_path: Path, allocated_at_most: int, count: int
) -> None:
    # Matrix 1 is idle in the second operation, matrix 5 in the third.
    program = program_of(
        tmp_path, add(10, 1, 2, 3), add(11, 3, 4, 5), add(12, 1, 6, 7), add(13, 7, 5, 8)
    )
    capacity = 2**30

    flushes = flushed(program, "meta", allocated_at_most / capacity, device_memory=capacity)

    assert flushes.count == count


@pytest.mark.parametrize("device", DEVICES)
def test_a_flush_that_finds_nothing_to_free_is_not_counted(tmp_path: Path, device: str) -> None:
    program = program_of(tmp_path, add(10, 1, 2, 3), add(11, 3, 3, 4), add(12, 4, 4, 5))

    assert flushed(program, device, 0.0001, device_memory=1024 * MIB) == Flushes(0, 0, 0)


def test_what_has_gone_comes_again_no_earlier_than_it_is_needed(tmp_path: Path) -> None:
    # Matrix 1 goes before 11, is not there to go before 12, and comes again for 13.
    program = program_of(
        tmp_path, add(10, 1, 2, 3), add(11, 3, 3, 4), add(12, 4, 4, 5), add(13, 1, 5, 6)
    )

    assert flushed(program, "meta", 0.0001, device_memory=1024 * MIB) == Flushes(
        count=1, freed=MATRIX, recreated=MATRIX
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("iterations", [1, 2, 25])
def test_flushes_are_those_of_one_iteration(tmp_path: Path, device: str, iterations: int) -> None:
    small = [floats(number, 8, 8) for number in range(7)]
    program = program_of(
        tmp_path,
        call(10, "add.Tensor", [small[1], small[2], 1], [small[3]]),
        call(11, "add.Tensor", [small[3], small[4], 1], [small[5]]),
        call(12, "add.Tensor", [small[1], small[5], 1], [small[6]]),
    )

    flushes = flushed(program, device, 0.0001, device_memory=4 * MIB, iterations=iterations)

    assert flushes == Flushes(count=1, freed=256, recreated=256)


def test_an_operations_own_inputs_stay_even_if_they_alone_pass_the_threshold(
    tmp_path: Path,
) -> None:
    program = program_of(tmp_path, add(10, 1, 2, 3), add(11, 1, 3, 4), add(12, 1, 4, 5))

    flushes = flushed(program, "meta", 0.0001, device_memory=1024 * MIB)

    assert flushes == Flushes(0, 0, 0)


@pytest.mark.parametrize("device", DEVICES)
def test_a_computed_index_that_is_created_again_stays_in_bounds(
    tmp_path: Path, device: str
) -> None:
    scores, values, order = floats(11, 4, 1000), floats(12, 4, 2), integers(13, 4, 2)
    big, table = [floats(21, 512, 512), floats(22, 512, 512)], floats(31, 4, 3)
    program = program_of(
        tmp_path,
        call(10, "topk", [scores, 2, 1, True, True], [values, order]),
        call(11, "relu", [big[0]], [big[1]]),
        call(12, "relu", [big[1]], [floats(23, 512, 512)]),
        call(13, "gather", [floats(14, 4, 1000), 1, order, False], [floats(15, 4, 2)]),
        call(14, "embedding", [table, order, -1, False, False], [floats(16, 4, 2, 3)]),
    )

    flushes = flushed(program, device, 0.0001, device_memory=80 * MIB)

    # Before 12 the index goes, of 64 bytes; nothing else lives but what 12 needs.
    assert flushes == Flushes(count=1, freed=64, recreated=64)


def test_views_are_made_again_on_one_storage(tmp_path: Path) -> None:
    weight, flat = integers(1, 2, 2), T(2, 1, 0, 4, 8, dtype="long int")
    nodes = [
        call(10, "view", [weight, [4]], [flat]),
        call(11, "relu", [floats(3, 64)], [floats(4, 64)]),
        call(12, "add_.Scalar", [weight, 7, 1], [weight]),
        see(13, flat),
    ]
    options = {"device_memory": 4 * MIB, "device_memory_threshold": 0.00001}

    assert values_seen(tmp_path, *nodes, mode=LAZY, **options) == [[7, 7, 7, 7]]
    assert run(program_of(tmp_path, *nodes), LAZY, **options).flushes == Flushes(1, 32, 32)


def test_host_tensors_stay_when_the_device_is_flushed(tmp_path: Path) -> None:
    host = integers(1, 2, device="cpu")
    nodes = [
        call(10, "add_.Scalar", [host, 7, 1], [host]),
        call(11, "add.Tensor", [floats(2, 64), floats(3, 64), 1], [floats(4, 64)]),
        call(12, "relu", [floats(4, 64)], [floats(5, 64)]),
        call(13, "relu", [floats(2, 64)], [floats(6, 64)]),
        see(14, host),
    ]
    options = {"device_memory": 4 * MIB, "device_memory_threshold": 0.00001}

    assert values_seen(tmp_path, *nodes, mode=LAZY, **options) == [[7, 7]]
    assert run(program_of(tmp_path, *nodes), LAZY, **options).flushes == Flushes(1, 256, 256)


@pytest.mark.parametrize("device", DEVICES)
def test_running_out_of_memory_still_tells_of_the_flushes_before(
    tmp_path: Path, device: str
) -> None:
    triple, five = floats(6, 3 * SIDE, SIDE), floats(5, SIDE, SIDE)
    program = program_of(
        tmp_path,
        *(add(10, 1, 2, 3), add(11, 3, 3, 4), add(12, 1, 4, 5)),
        call(13, "cat", [[five, five, five], 0], [triple]),
    )

    result = run(program, LAZY, device, device_memory=3 * MATRIX, device_memory_threshold=0.1)

    assert result.out_of_memory is not None
    assert result.out_of_memory.node_id == 13
    assert result.flushes == Flushes(1, MATRIX, MATRIX)


def test_a_threshold_is_refused_in_the_pre_allocate_mode(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="below 1 needs --tensor-allocation-mode lazy"):
        run(idle_weight(tmp_path), PRE, "meta", device_memory_threshold=0.5)


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.5, float("nan")])
def test_a_threshold_that_is_no_share_is_refused(tmp_path: Path, threshold: float) -> None:
    with pytest.raises(UsageError, match="-threshold above 0 and up to 1, got"):
        run(idle_weight(tmp_path), LAZY, "meta", device_memory_threshold=threshold)
