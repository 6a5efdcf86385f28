"""Real and generated instances with what a plan of them has to reach.

All of them, and the times, are in `tests/benchmarks/bench_planning.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from planning_instances import files_of, instance_of_events, read_instance
from training_lifetimes import Job, training_job

from et_replay.events import MemoryHistory
from et_replay.formats import open_recording, open_trace
from et_replay.planning import Packing
from et_replay.program import Mode, allocation_events, build_program, select_window

Pack = Callable[..., Packing]

AT_THE_BOUND = (
    "jobs/gpt2 jobs/moe jobs/resnet somas/resnet50 training/tfm2k iopddl/G_1 minimalloc/input"
).split()
HARD = {"A": 1_048_576, "B": 1_048_576, "C": 1_039_360, "F": 1_048_576, "K": 1_048_576}


@pytest.mark.parametrize("name", AT_THE_BOUND)
def test_the_arena_is_what_lives_at_once(pack: Pack, shared_data: Path, name: str) -> None:
    instance = read_instance(files_of(shared_data / "planner")[name])
    packing = pack(*instance)
    assert packing.arena_bytes == packing.lower_bound_bytes
    assert packing.proven


def test_the_example_of_five_buffers_needs_twelve_bytes(pack: Pack, shared_data: Path) -> None:
    instance = read_instance(files_of(shared_data / "planner")["minimalloc/input"])
    assert pack(*instance).arena_bytes == 12


@pytest.mark.parametrize("name", HARD)
def test_hard_small_instances_fit_their_capacity(pack: Pack, shared_data: Path, name: str) -> None:
    instance = read_instance(files_of(shared_data / "planner")[f"minimalloc/{name}"])
    packing = pack(*instance, timeout=30)  # ten seconds are enough on a machine of its own
    assert packing.arena_bytes <= HARD[name]


@pytest.mark.parametrize("name", ["resnet", "gpt2", "moe"])
def test_snapshots_of_jobs_reach_the_bound(pack: Pack, shared_data: Path, name: str) -> None:
    history = open_recording(shared_data / f"workloads/{name}_snapshot.pickle.gz")
    assert isinstance(history, MemoryHistory)
    packing = pack(*instance_of_events(history.events))
    assert packing.arena_bytes == packing.lower_bound_bytes


@pytest.mark.parametrize("mode", [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE])
@pytest.mark.parametrize("name", ["resnet", "gpt2", "moe"])
def test_traces_of_jobs_reach_the_bound(
    pack: Pack, shared_data: Path, name: str, mode: Mode
) -> None:
    trace = open_trace(shared_data / f"workloads/{name}_et.json.gz")
    events = allocation_events(build_program(trace, select_window(trace)), mode)
    packing = pack(*instance_of_events(events))
    assert packing.arena_bytes == packing.lower_bound_bytes


@pytest.mark.parametrize(
    "job",
    [
        Job(layers=11, iterations=2),
        Job(stage=1, stages=4, chunks=2, micro_batches=16, recompute="half", gathered=True),
        Job(stage=0, stages=4, chunks=2, micro_batches=8, layers=2, experts=8, seed=3),
    ],
    ids=["accumulation", "pipeline", "experts"],
)
def test_jobs_of_each_kind_come_near_the_bound(pack: Pack, job: Job) -> None:
    packing = pack(*training_job(job), level="fast", timeout=0)  # its steps alone decide
    assert packing.arena_bytes <= 1.0011 * packing.lower_bound_bytes
