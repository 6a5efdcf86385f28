"""A replay in a process of its own: the same result, the same errors, and a process that dies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from replay.tiny_traces import call, floats
from trace_builder import mark, write_trace

from et_replay.errors import ReplayError, TraceError, UsageError
from et_replay.formats import open_trace
from et_replay.program import build_program, select_window
from et_replay.replay.engine import replay
from et_replay.replay.options import ReplayOptions
from et_replay.replay.own_process import ReplayJob, replay_in_own_process

MIB = 2**20


def job(trace: str, window: str | None = None, **options: int) -> ReplayJob:
    return ReplayJob(trace, window, True, ReplayOptions(device="meta", **options))  # type: ignore[arg-type]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Return two steps over 1 MiB each: y = relu(x), and in the last z = y + x, too."""

    def values(number: int) -> object:
        return floats(number, 512, 512)

    nodes = (
        mark(8, "ProfilerStep#1"),
        call(9, "relu", [values(1)], [values(2)], parent=8),
        mark(10, "ProfilerStep#2"),
        call(11, "relu", [values(1)], [values(2)], parent=10),
        call(12, "add.Tensor", [values(2), values(1), 1], [values(3)], parent=10),
    )
    return str(write_trace(tmp_path / "step.json", *nodes))


@pytest.mark.parametrize(("window", "operations", "peak"), [(None, 2, 3), ("ProfilerStep#1", 1, 2)])
def test_the_result_is_that_of_this_process(
    trace: str, window: str | None, operations: int, peak: int
) -> None:
    found = replay_in_own_process(job(trace, window, iterations=2))

    assert (found.coverage.executed, found.coverage.total) == (operations, operations)
    assert found.memory.allocated == peak * MIB
    assert len(found.iteration_times) == 2
    opened = open_trace(trace)
    here = replay(
        build_program(opened, select_window(opened, window)),
        ReplayOptions(device="meta", iterations=2),
    )
    assert (found.memory, found.coverage) == (here.memory, here.coverage)
    assert (found.trace, found.window, found.node_ids) == (here.trace, here.window, here.node_ids)


def test_running_out_of_memory_is_a_result(trace: str) -> None:
    failure = replay_in_own_process(job(trace, device_memory=5 * MIB // 2)).out_of_memory
    assert failure is not None
    assert (failure.requested, failure.capacity) == (MIB, 5 * MIB // 2)


def test_a_file_that_is_not_there_is_the_error_that_it_is_here(tmp_path: Path) -> None:
    path = str(tmp_path / "none.json")
    with pytest.raises(TraceError) as raised:
        replay_in_own_process(job(path))
    assert type(raised.value) is TraceError
    assert str(raised.value) == f"Cannot read {path}: No such file or directory."


def test_a_window_that_is_not_there_is_wrong_usage(trace: str) -> None:
    with pytest.raises(UsageError) as raised:
        replay_in_own_process(job(trace, "ProfilerStep#7"))
    assert type(raised.value) is UsageError
    assert str(raised.value).startswith(f"{trace} has no window 'ProfilerStep#7'; it has ")


class Deadly(str):
    """A path whose reader ends at once, as a process that is killed does."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (9,)


def test_a_process_that_dies_is_named_with_its_allocator() -> None:
    with pytest.raises(ReplayError) as raised:
        replay_in_own_process(job(Deadly("step.json")))
    assert type(raised.value) is ReplayError
    assert str(raised.value) == (
        "The process that replayed step.json with the allocator native ended without a result;"
        " run et_replay replay with it to see why."
    )
