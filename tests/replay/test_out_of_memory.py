"""Out of memory on a simulated device: a result that names the operation and what is live."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import MIB, call, floats, run

from et_replay.errors import ReplayError
from et_replay.program import Mode, Program
from et_replay.replay.result import LiveStorage
from et_replay.units import format_bytes

PRE, LAZY = Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE
DEVICES = ["cpu", "meta"]
MODES = [PRE, LAZY]


def joined(folder: Path) -> Program:
    """Return cat(relu(a), b): 12 MiB, again 12 MiB, 16 MiB, and 28 MiB for the result.

    From 10 MiB on a tensor has a segment of its own, so that device memory is used to the byte.
    """
    a, positive, b, both = (
        floats(number, size * MIB // 4) for number, size in ((11, 12), (12, 12), (13, 16), (14, 28))
    )
    return program_of(
        folder, call(20, "relu", [a], [positive]), call(21, "cat", [[positive, b], 0], [both])
    )


@pytest.mark.parametrize("device", DEVICES)
def test_a_request_that_does_not_fit_is_a_result_with_its_operation_and_figures(
    tmp_path: Path, device: str
) -> None:
    result = run(joined(tmp_path), PRE, device, device_memory=50 * MIB, warmup=1)

    error = result.out_of_memory
    assert error is not None
    assert (error.node_id, error.operator) == (21, "aten::cat")
    assert (error.requested, error.capacity) == (28 * MIB, 50 * MIB)
    assert (error.allocated, error.reserved) == (40 * MIB, 40 * MIB)
    assert str(error) == (
        "Out of memory: a request of 28.0 MiB does not fit the device of 50.0 MiB, of which 40.0"
        " MiB are allocated and 0 B are reserved but unallocated."
    )
    assert result.device_memory == 50 * MIB
    assert result.iteration_times == []
    assert result.memory.allocated == 40 * MIB


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_live_comes_with_its_origin_the_largest_first(tmp_path: Path, device: str) -> None:
    live = run(joined(tmp_path), PRE, device, device_memory=50 * MIB).live

    assert live[0] == LiveStorage(16 * MIB, "input", "", 21)
    assert sorted(live[1:], key=lambda storage: storage.kind) == [
        LiveStorage(12 * MIB, "input", "", 20),
        LiveStorage(12 * MIB, "produced", "aten::relu", 20),
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_in_lazy_only_what_the_operation_takes_is_live(tmp_path: Path, device: str) -> None:
    result = run(joined(tmp_path), LAZY, device, device_memory=50 * MIB)

    assert result.out_of_memory is not None
    assert result.out_of_memory.node_id == 21
    assert result.live == [
        LiveStorage(16 * MIB, "input", "", 21),
        LiveStorage(12 * MIB, "produced", "aten::relu", 20),
    ]


@pytest.mark.parametrize(("mode", "need"), [(PRE, 68 * MIB), (LAZY, 56 * MIB)])
def test_the_smallest_device_memory_is_exact(tmp_path: Path, mode: Mode, need: int) -> None:
    program = joined(tmp_path)

    enough = run(program, mode, "meta", device_memory=need, iterations=3)
    too_little = run(program, mode, "meta", device_memory=need - 1, iterations=3)

    assert enough.out_of_memory is None
    assert len(enough.iteration_times) == 3
    assert too_little.out_of_memory is not None


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_that_do_not_fit_fail_before_the_first_operation(
    tmp_path: Path, device: str
) -> None:
    result = run(joined(tmp_path), PRE, device, device_memory=20 * MIB)

    error = result.out_of_memory
    assert error is not None
    assert (error.node_id, error.operator, error.requested) == (None, None, 16 * MIB)
    assert result.live == [LiveStorage(12 * MIB, "input", "", 20)]
    assert result.coverage.total == 2


def test_a_library_workspace_that_does_not_fit_fails_before_the_first_operation(
    tmp_path: Path,
) -> None:
    result = run(joined(tmp_path), LAZY, "meta", device_memory=MIB, library_workspace=2 * MIB)

    assert result.out_of_memory is not None
    assert result.out_of_memory.requested == 2 * MIB
    assert list(result.live) == []


def test_a_machine_without_the_memory_to_run_the_operators_is_an_error_with_the_way_out(
    tmp_path: Path,
) -> None:
    host = floats(11, 2**48, device="cpu")
    program = program_of(tmp_path, call(20, "relu_", [host], [host]))

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    with pytest.raises(ReplayError) as caught:
        run(program, PRE, "cpu", device_memory=2**50)

    assert str(caught.value) == (
        f"The replay needs 1.00 PiB on cpu, and this machine has {format_bytes(memory)};"
        " --device meta needs none."
    )
    assert run(program, PRE, "meta", device_memory=2**50).out_of_memory is None


@pytest.mark.parametrize("mode", MODES)
def test_a_result_holds_no_tensors_of_the_replay_that_failed(tmp_path: Path, mode: Mode) -> None:
    result = run(joined(tmp_path), mode, "cpu", device_memory=50 * MIB)

    gc.collect()
    sizes = [
        value.numel()
        for value in gc.get_objects()
        if type(value) is torch.Tensor and value.numel() > MIB
    ]
    assert result.out_of_memory is not None
    assert sizes == []


def test_a_failure_in_one_replay_leaves_the_next_alone(tmp_path: Path) -> None:
    program = joined(tmp_path)

    before = run(program, PRE, "meta")
    run(program, PRE, "meta", device_memory=50 * MIB)
    after = run(program, PRE, "meta")

    assert after.out_of_memory is None
    assert (after.memory, after.coverage) == (before.memory, before.coverage)
