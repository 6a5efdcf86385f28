"""ServedMemory and FallbackFinder over an allocator that only notes what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from et_replay.allocator_figures import PlanFigures, Served
from et_replay.events import Action, AllocationEvents
from et_replay.planning import plan_events
from et_replay.program.requests import RecordedRequests
from et_replay.replay import served_memory
from et_replay.replay.result import Elsewhere
from et_replay.replay.served_memory import FallbackFinder, ServedMemory
from et_replay.replay.target import Target

A, F = Action.ALLOC, Action.FREE
NOTHING = Served(0, 0)


class Told:
    """What an allocator was told."""

    def __init__(self) -> None:
        self.installed: list[tuple[str, int | None]] = []
        self.adopted: list[tuple[Any, list[int], list[int], list[int], int]] = []
        self.expected: list[tuple[int, int, int]] = []

    def adopt(self, plan: Any, storage: Any, size: Any, stream: Any, device: int) -> None:
        self.adopted.append((plan, storage.tolist(), size.tolist(), stream.tolist(), device))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    fake = SimpleNamespace(
        install=lambda allocator, capacity: told.installed.append((allocator, capacity)),
        adopt=told.adopt,
        out_of_memory_thrower=lambda: 1,
        expect=lambda device, begin, end: told.expected.append((device, begin, end)),
    )
    monkeypatch.setattr(served_memory, "pluggable", fake)
    device = SimpleNamespace(total_memory=1_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return told


def served(allocator: str = "stalloc", capacity: int | None = None) -> ServedMemory:
    return ServedMemory(Target(torch.device("cuda:1"), "cuda"), allocator, capacity)


def events(rows: Sequence[tuple[Action, int, int, int]], steps: list[int]) -> AllocationEvents:
    """Make events of (action, storage, size, stream)."""
    action, storage, size, stream = np.array(rows, dtype=np.int64).T.copy()
    nodes = np.zeros(len(rows), dtype=np.int64)
    bounds = np.array(steps, dtype=np.int64)
    return AllocationEvents(action.astype(np.int8), storage, size, stream, nodes, bounds)


def recorded() -> RecordedRequests:
    """Return three operations over an input 0 from before; 9 is kept by a library."""
    rows = [
        (A, 0, 4096, 0),
        (A, 9, 7777, 0), (A, 3, 1024, 0), (A, 4, 512, 0),
        (F, 3, 1024, 0),
        (A, 6, 1000, 0), (F, 4, 512, 0), (F, 6, 1000, 0),
    ]  # fmt: skip
    return RecordedRequests(events(rows, steps=[1, 4, 5, 8]), {})


def test_a_plan_is_made_of_what_passes_and_of_nothing_else(told: Told) -> None:
    """6 takes the place of 3, as 4 lives beside both."""
    plan = served().adopt(recorded(), None)

    ((columns, *_),) = told.adopted
    assert columns.storage.tolist() == [3, 4, 6]
    assert columns.size.tolist() == [1024, 512, 1000]
    assert plan.arena_bytes == columns.arena == plan.lower_bound_bytes == 1024 + 512
    assert columns.offset[0] == columns.offset[2]


def test_requests_are_listed_in_order_with_what_exactly_they_ask_for(told: Told) -> None:
    served().adopt(recorded(), None)
    ((_, storage, size, stream, device),) = told.adopted
    assert (storage, size, stream, device) == ([3, 4, 6], [1024, 512, 1000], [0, 0, 0], 1)


def test_each_operation_is_told_by_its_part_of_the_list(told: Told) -> None:
    memory = served()
    assert not memory.steps
    memory.adopt(recorded(), None)
    assert memory.steps
    for k in range(3):
        memory.step(k)
    assert told.expected == [(1, 0, 2), (1, 2, 2), (1, 2, 3)]


def test_a_given_plan_is_served_to_the_requests_that_it_knows(told: Told) -> None:
    plan = plan_events(events([(A, 4, 512, 0), (A, 6, 1000, 0), (F, 6, 1000, 0), (F, 4, 512, 0)],
                              steps=[0, 4]))  # fmt: skip
    memory = served()
    assert memory.adopt(recorded(), plan) is plan

    ((columns, storage, size, *_),) = told.adopted
    assert (columns.storage.tolist(), columns.arena) == ([4, 6], 512 + 1024)
    assert (storage, size) == ([4, 6], [512, 1000])
    for k in range(3):
        memory.step(k)
    assert told.expected == [(1, 0, 1), (1, 1, 1), (1, 1, 2)]


def test_streams_share_no_memory_of_a_plan(told: Told) -> None:
    rows = [(A, 1, 512, 0), (F, 1, 512, 0), (A, 2, 512, 5), (F, 2, 512, 5)]
    plan = served().adopt(RecordedRequests(events(rows, steps=[0, 2, 4]), {}), None)
    ((columns, storage, _, stream, _),) = told.adopted
    assert (storage, stream) == ([1, 2], [0, 5])
    assert sorted(columns.offset.tolist()) == [0, 512]
    assert plan.arena_bytes == 1024


@pytest.mark.parametrize(
    ("asked", "capacity"), [(None, 1_000_000), (600_000, 600_000), (2_000_000, 1_000_000)]
)
def test_the_capacity_is_what_the_device_has_at_most(
    told: Told, asked: int | None, capacity: int
) -> None:
    assert served("native:max_split_size_mb:64", asked).capacity == capacity
    assert told.installed == [("native:max_split_size_mb:64", asked)]


def figures(requests: int, size: int) -> PlanFigures:
    """Return the figures after so many requests that the fallback served."""
    return PlanFigures(4096, Served(50, 9000), NOTHING, NOTHING, Served(requests, size), 0)


def found(operators: Sequence[str], *seen: PlanFigures | None) -> tuple[list[Elsewhere], list[int]]:
    """Return what is found where `seen` are the figures before each operation and at the end."""
    looks = iter(seen)
    steps: list[int] = []
    memory: Any = SimpleNamespace(plan_figures=lambda: next(looks), step=steps.append)
    finder = FallbackFinder(memory, operators)
    for k in range(len(operators)):
        finder.step(k)
    result = finder.finish()
    assert next(looks, "no more") == "no more"
    return result, steps


def test_requests_of_the_fallback_are_those_of_the_operation_before_the_next_look() -> None:
    """2 requests of 700 bytes are from earlier iterations."""
    entries, steps = found(
        ["aten::mm", "aten::relu", "aten::mm", "aten::add"],
        figures(2, 700), figures(3, 800), figures(3, 800), figures(5, 1100), figures(6, 1600),
    )  # fmt: skip
    assert entries == [Elsewhere("aten::add", 1, 500), Elsewhere("aten::mm", 3, 400)]
    assert steps == [0, 1, 2, 3]


def test_a_plan_that_served_all_leaves_no_operator() -> None:
    assert found(["aten::mm"], figures(4, 100), figures(4, 100))[0] == []


def test_without_a_plan_there_is_nothing_to_find() -> None:
    assert found(["aten::mm"], None, None)[0] == []


def test_a_plan_is_served_where_memory_is_flushed_too(told: Told) -> None:
    memory = ServedMemory(Target(torch.device("cuda", 0), "cuda"), "stalloc", None)

    memory.step_inside(0)
    memory._starts = [0, 2, 5]
    memory.step_inside(0)
    memory.step_inside(1)

    assert told.expected == [(0, 0, 2), (0, 2, 5)]
