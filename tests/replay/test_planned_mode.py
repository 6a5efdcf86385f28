"""STALLOC_PLANNED: lazy lifetimes at addresses that were planned ahead of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import MIB, call, floats, run, see, values_seen
from trace_builder import NodeSpec

from et_replay.errors import PlanError, UsageError
from et_replay.planning import plan_events
from et_replay.program import Mode, Program, allocation_events
from et_replay.replay.options import ReplayOptions
from et_replay.report.replay import replay_text

PRE, LAZY, STALLOC = Mode
SIDE = 1024
MATRIX = SIDE * SIDE * 4


def chain(*others: NodeSpec) -> Sequence[NodeSpec]:
    """Add up: 1 + 2 = 3, 1 + 3 = 4, 1 + 4 = 5; three matrices of 4 MiB live at once, at most."""
    return [
        call(10 + k, "add.Tensor", [matrix(1), matrix(2 + k), 1], [matrix(3 + k)]) for k in range(3)
    ] + list(others)


def matrix(number: int) -> object:
    return floats(number, SIDE, SIDE)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return program_of(tmp_path, *chain())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_all_requests_get_their_planned_addresses(program: Program, device: str) -> None:
    result = run(program, STALLOC, device, iterations=3)

    assert result.plan is not None
    assert result.plan_figures is not None
    assert result.plan.arena_bytes == result.plan.lower_bound_bytes == 3 * MATRIX
    assert result.plan_figures.planned.requests == 3 * 5
    assert result.plan_figures.reused.requests == result.plan_figures.fallback.requests == 0
    lazy = run(program, LAZY, device).memory
    assert (result.memory.allocated, result.memory.active) == (lazy.allocated, lazy.active)
    assert result.memory.reserved == 3 * MATRIX < lazy.reserved


def test_the_values_are_those_of_the_other_modes(tmp_path: Path) -> None:
    nodes = chain(see(20, matrix(5)))
    assert values_seen(tmp_path, *nodes, mode=STALLOC) == values_seen(tmp_path, *nodes, mode=PRE)


def test_a_plan_made_before_is_served(program: Program) -> None:
    plan = replace(plan_events(allocation_events(program, LAZY)), source="before")
    result = run(program, STALLOC, "meta", plan=plan)
    assert result.plan is plan


def test_the_plan_of_another_program_is_refused(program: Program) -> None:
    plan = replace(
        plan_events(allocation_events(program, PRE)), source=program.trace.source, mode="pre"
    )
    with pytest.raises(
        PlanError,
        match=r" with --tensor-allocation-mode pre, not from .* with --tensor-allocation-mode"
        r" stalloc and --window all; .* is storage 0.*plan --tensor-allocation-mode stalloc",
    ):
        run(program, STALLOC, "meta", plan=plan)


def test_a_device_that_is_too_small_for_the_arena_is_out_of_memory(program: Program) -> None:
    result = run(program, STALLOC, "meta", device_memory=10 * MIB)
    assert result.out_of_memory is not None
    assert result.out_of_memory.node_id == 10
    assert result.out_of_memory.requested == 3 * MATRIX
    assert (
        "  It failed at node 10, aten::add, the first to ask the plan's arena for memory. The"
        " plan's arena of 12.0 MiB is taken from the device as a whole, and does not fit its 10.0"
        " MiB: give it more with --device-memory, or serve without a plan."
    ) in replay_text(result).split("\n")


def test_a_workspace_is_not_planned_and_counted(program: Program) -> None:
    result = run(program, STALLOC, "meta", library_workspace=32 * MIB)
    assert result.plan_figures is not None
    assert result.plan_figures.fallback.requests == 1
    assert result.plan_figures.fallback_peak_reserved == 32 * MIB
    assert result.memory.reserved == 3 * MATRIX + 32 * MIB


def test_a_plan_needs_the_planned_mode(program: Program) -> None:
    plan = plan_events(allocation_events(program, LAZY))
    with pytest.raises(UsageError, match="--plan needs"):
        ReplayOptions(LAZY, plan=plan)
    with pytest.raises(UsageError, match="--device-memory-threshold below 1 needs"):
        ReplayOptions(STALLOC, device_memory_threshold=0.5)
