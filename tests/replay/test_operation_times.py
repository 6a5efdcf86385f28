"""The time of each class of operations: counts and grouping, and nothing else is changed by it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import MIB, call, floats, run

from et_replay.errors import ReplayError, UsageError
from et_replay.program import Mode, Program
from et_replay.program.operation_classes import OperationClass
from et_replay.replay import ReplayOptions
from et_replay.replay.operation_clock import HostClock, add_up
from et_replay.replay.result import ClassTime, OperatorTime


def program(folder: Path) -> Program:
    """Return relu((a @ b) + (b @ a)) + a."""
    a, b, c, d, e, f, g = (floats(number, 64, 64) for number in range(11, 18))
    return program_of(
        folder,
        call(20, "mm", [a, b], [c]),
        call(21, "mm", [b, a], [d]),
        call(22, "add.Tensor", [c, d, 1], [e]),
        call(23, "relu", [e], [f]),
        call(24, "add.Tensor", [f, a, 1], [g]),
    )


def counts(classes: tuple[ClassTime, ...]) -> dict[str, tuple[int, list[tuple[str, int]]]]:
    return {
        each.operation_class.value: (
            each.operations,
            [(operator.name, operator.operations) for operator in each.operators],
        )
        for each in classes
    }


def test_times_are_added_up_by_class_and_by_name_in_each_iteration(tmp_path: Path) -> None:
    classes = add_up(program(tmp_path), [[1, 5, 3, 4, 5], [10, 20, 30, 40, 50], [2, 2, 2, 2, 2]])

    assert classes == (
        ClassTime(OperationClass.ELEMENTWISE, (OperatorTime("aten::add", 2, (8, 80, 4)),)),
        ClassTime(OperationClass.MATRIX_PRODUCT, (OperatorTime("aten::mm", 2, (6, 30, 4)),)),
        ClassTime(OperationClass.ACTIVATION, (OperatorTime("aten::relu", 1, (4, 40, 2)),)),
    )


def test_operators_of_one_class_come_with_the_longest_first() -> None:
    short, long = OperatorTime("aten::mul", 1, (1, 3, 2)), OperatorTime("aten::add", 2, (9, 5, 7))
    both = ClassTime(OperationClass.ELEMENTWISE, (long, short))

    assert (both.operations, both.times, both.median) == (3, [10, 8, 9], 9)


@pytest.mark.parametrize("mode", list(Mode))
def test_on_cpu_the_times_come_where_they_are_asked_for(tmp_path: Path, mode: Mode) -> None:
    without = run(program(tmp_path), mode)
    with_times = run(program(tmp_path), mode, operator_times=True)

    assert without.operation_times == ()
    assert counts(with_times.operation_times) == {
        "matrix product": (2, [("aten::mm", 2)]),
        "elementwise": (2, [("aten::add", 2)]),
        "activation": (1, [("aten::relu", 1)]),
    }
    assert all(len(each.times) == 3 for each in with_times.operation_times)
    assert all(time > 0 for each in with_times.operation_times for time in each.times)


@pytest.mark.parametrize("mode", list(Mode))
def test_taking_times_changes_no_other_figure(tmp_path: Path, mode: Mode) -> None:
    without = run(program(tmp_path), mode, iterations=2)
    with_times = run(program(tmp_path), mode, iterations=2, operator_times=True)

    assert len(with_times.iteration_times) == 2
    assert with_times.memory == without.memory
    assert with_times.plan_figures == without.plan_figures
    assert with_times.coverage == without.coverage
    assert with_times.events is not None
    assert without.events is not None
    assert len(with_times.events) == len(without.events)


def test_flushes_are_counted_for_one_iteration(tmp_path: Path) -> None:
    options = {"device_memory": 4 * MIB, "device_memory_threshold": 0.005}
    without = run(program(tmp_path), Mode.LAZY_ALLOCATE, **options)
    with_times = run(program(tmp_path), Mode.LAZY_ALLOCATE, operator_times=True, **options)

    assert without.flushes.count > 0
    assert with_times.flushes == without.flushes


def test_progress_counts_the_further_iterations(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    run(
        program(tmp_path),
        progress=lambda done, total: seen.append((done, total)),
        warmup=1,
        operator_times=True,
    )

    assert seen == [(5, 25), (10, 25), (15, 25), (20, 25), (25, 25)]


def test_after_running_out_of_memory_no_times_are_taken(tmp_path: Path) -> None:
    result = run(program(tmp_path), device_memory=MIB, operator_times=True)

    assert result.out_of_memory is not None
    assert result.operation_times == ()


@pytest.mark.parametrize("kind", [RuntimeError, ReplayError])
def test_a_failure_while_times_are_taken_leaves_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fail(_: HostClock) -> list[int]:
        raise kind("The device is lost.\nAnd more.")

    monkeypatch.setattr(HostClock, "intervals", fail)

    result = run(program(tmp_path), operator_times=True)

    assert result.operation_times == ()
    assert len(result.iteration_times) == 1
    assert result.coverage.executed == 5
    assert result.notes[-1] == (
        "The times of operations are missing, as taking them failed: The device is lost."
    )


@pytest.mark.parametrize(
    ("operator_times", "device", "iterations"),
    [
        (None, "cuda", 3),
        (True, "cuda", 3),
        (False, "cuda", 0),
        (None, "cpu", 0),
        (True, "cpu", 3),
        (None, "meta", 0),
    ],
)
def test_times_are_taken_on_cuda_unless_told_otherwise(
    operator_times: bool | None, device: str, iterations: int
) -> None:
    options = ReplayOptions(operator_times=operator_times)
    assert options.further_iterations(torch.device(device).type) == iterations


def test_times_of_operators_that_compute_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="--operator-times needs operators that compute"):
        ReplayOptions(device="meta", operator_times=True)
