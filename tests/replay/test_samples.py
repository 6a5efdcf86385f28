"""Real traces, the bundled and the shared ones: all of them replay, and nothing is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from replay.tiny_traces import reasons, run

from et_replay.formats import open_trace
from et_replay.program import Mode, Program, build_program
from et_replay.replay.result import ReplayResult

PRE, LAZY = Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE
TRACES = Path(__file__).resolve().parents[2] / "traces"
BUNDLED = ["convnet_cuda", "moe_cuda", "transformer_cpu", "transformer_cuda"]
SHARED = [
    "traces/chakra_allgather_1.0.2.json.gz",
    "traces/hta_simple_add_1.0.1.json.gz",
    "traces/param_gpt2_1.1.0.json.gz",
    "traces/param_linear_1.0.1.json.gz",
    "traces/param_pt2_1.1.1.json",
    "traces/param_resnet_1.0.3.json.gz",
    "traces/param_resnet_1.1.0.json.gz",
    "traces/param_resnet_1.1.1.json.gz",
    "workloads/gpt2_et.json.gz",
    "workloads/moe_et.json.gz",
    "workloads/resnet_et.json.gz",
]
GOOD_REASONS = {
    "a collective, which only replay modes comm and full make",
    "a generated triton kernel, which cannot run on cpu",
    "a generated triton kernel, which cannot run on meta",
    "its result depends on data, and meta tensors have none",
}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Keep to two threads, so that replays on the CPU do not fight for busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(min(threads, 2))
    yield
    torch.set_num_threads(threads)


@cache
def bundled(name: str) -> Program:
    return build_program(open_trace(TRACES / f"{name}.json.gz"))


def both_modes(program: Program, device: str) -> tuple[ReplayResult, ReplayResult]:
    pre, lazy = run(program, PRE, device), run(program, LAZY, device)
    for result in (pre, lazy):
        assert result.coverage.total == len(program.operations)
        assert result.coverage.skipped == 0
        assert result.out_of_memory is None
    assert reasons(pre) == reasons(lazy)
    assert 0 < lazy.memory.allocated <= pre.memory.allocated
    return pre, lazy


def substitutes(result: ReplayResult) -> set[str]:
    return {reason for _, _, outcome, reason in reasons(result) if outcome == "substituted"}


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_trace_executes_whole_on_the_cpu_and_takes_the_memory_it_takes_on_meta(
    name: str,
) -> None:
    on_cpu, on_meta = both_modes(bundled(name), "cpu"), both_modes(bundled(name), "meta")

    for result in on_cpu:
        assert result.coverage.executed == result.coverage.total
    for result in on_meta:
        assert substitutes(result) <= {"its result depends on data, and meta tensors have none"}
    assert [each.memory for each in on_cpu] == [each.memory for each in on_meta]


@pytest.mark.parametrize("name", SHARED)
def test_a_trace_of_others_replays_on_meta(shared_data: Path, name: str) -> None:
    pre, _ = both_modes(build_program(open_trace(shared_data / name)), "meta")

    assert substitutes(pre) <= GOOD_REASONS


@pytest.mark.parametrize("name", BUNDLED)
def test_a_flushing_replay_of_a_bundled_trace_takes_less_memory_than_a_lazy_one(
    name: str,
) -> None:
    program = bundled(name)
    lazy = run(program, LAZY, "meta")

    capacity = lazy.memory.allocated
    flushing = run(program, LAZY, "meta", device_memory=2 * capacity, device_memory_threshold=0.25)

    assert flushing.flushes.count > 0
    assert 0 < flushing.flushes.recreated <= flushing.flushes.freed
    assert flushing.memory.allocated < lazy.memory.allocated
    assert reasons(flushing) == reasons(lazy)
