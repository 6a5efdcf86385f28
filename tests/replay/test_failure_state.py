"""The state of a device at a request that failed, as torch shows it, becomes an explanation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import MIB, call, floats, held, run
from snapshot_builder import block, segment, snapshot

from et_replay.commands.reasons import reasons_of
from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import Action, MemoryHistory
from et_replay.explain import Explanation
from et_replay.explain.causes import causes
from et_replay.explain.explanation import Moment
from et_replay.origins import MemoryClass, Origin
from et_replay.program import Program
from et_replay.program.part import part_of
from et_replay.replay.failure_state import FailureState, history_at_failure
from et_replay.replay.out_of_memory_watch import OutOfMemoryWatch, state_of
from et_replay.replay.result import Coverage, MemoryPeaks, ReplayResult
from et_replay.replay.target import Target
from et_replay.report.replay import replay_text

SHARED, OWN = 0x7F0000000000, 0x7F0010000000
A, WEIGHT = SHARED, SHARED + 9 * MIB
GIB = 2**30


def product(folder: Path) -> Program:
    """Return a @ b over matrices of 9 MiB, which share segments of 20 MiB."""
    a, b, c = (floats(number, 1536, 1536) for number in (11, 12, 13))
    return program_of(folder, call(10, "mm", [a, b], [c]))


def full(**others: Any) -> dict[str, Any]:
    """Return a snapshot of 52 MiB: both inputs of `product` and a hole, and what is in no trace."""
    return snapshot(
        [
            segment(SHARED, block(9 * MIB), block(9 * MIB), block(2 * MIB, "inactive")),
            segment(OWN, block(32 * MIB)),
        ],
        **others,
    )


def state(asked: int = 20 * MIB, limit: int = 64 * MIB, free: int = GIB) -> FailureState:
    return state_of(full(), 0, asked, limit, free)


def failure(node_id: int | None = 10, operator: str | None = "aten::mm") -> OutOfMemoryError:
    return OutOfMemoryError(
        "Out of memory.",
        requested=20 * MIB,
        capacity=64 * MIB,
        allocated=50 * MIB,
        reserved=52 * MIB,
        limit=64 * MIB,
        node_id=node_id,
        operator=operator,
    )


def history(folder: Path, at: FailureState | None = None) -> MemoryHistory:
    return history_at_failure(product(folder), at or state(), {A: 0, WEIGHT: 1}, failure())


def result(program: Program, at_failure: MemoryHistory) -> ReplayResult:
    return ReplayResult(
        trace="step.json",
        device="cuda:0",
        simulated=False,
        mode="pre",
        window="all",
        node_ids=(10, 10),
        device_memory=64 * MIB,
        library_workspace=0,
        coverage=Coverage(0, 0, 0, not_reached=1),
        iteration_times=(),
        memory=MemoryPeaks(50 * MIB, 50 * MIB, 52 * MIB),
        out_of_memory=failure(),
        at_failure=at_failure,
    )


def explained(program: Program, at_failure: MemoryHistory) -> Explanation | None:
    return reasons_of(program, result(program, at_failure), Moment.FAILURE)[0]


def test_a_snapshot_tells_the_figures_of_the_device() -> None:
    seen = state_of(full(), 0, 20 * MIB, 64 * MIB, free=GIB)

    assert (seen.allocated, seen.reserved, seen.largest_free) == (50 * MIB, 52 * MIB, 2 * MIB)
    assert (seen.asked, seen.capacity, seen.limit) == (20 * MIB, GIB + 52 * MIB, 64 * MIB)
    assert seen.settings == ""


def test_a_device_that_others_use_limits_more_than_what_is_allowed() -> None:
    seen = state_of(full(), 0, 20 * MIB, 80 * GIB, free=3 * MIB)

    assert (seen.capacity, seen.limit) == (55 * MIB, 55 * MIB)


def test_the_settings_in_force_are_kept() -> None:
    fields = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": 64 * MIB}

    seen = state_of(full(allocator_settings=fields), 0, 20 * MIB, 64 * MIB, GIB)

    assert seen.settings == "max_split_size_mb:64"


def test_a_device_without_memory_of_torch_has_a_state_too() -> None:
    seen = state_of(snapshot([]), 0, 20 * MIB, 10 * MIB, GIB)

    assert (seen.segments, seen.reserved, seen.limit) == ((), 0, 10 * MIB)


def test_blocks_get_the_storages_that_tensors_have_there_and_others_their_own(
    tmp_path: Path,
) -> None:
    made = history(tmp_path)

    assert [b.storage for s in made.segments for b in s.blocks] == [0, 1, -1, 3]
    assert made.origins[0] == Origin("input of aten::mm", (), MemoryClass.INPUT)
    assert made.origins[1] == Origin("input of aten::mm", (), MemoryClass.WEIGHT)
    assert made.origins[3] == Origin("in no tensor of the trace", (), MemoryClass.LIBRARY)


def test_what_the_operation_let_go_of_is_its_own(tmp_path: Path) -> None:
    at = FailureState(state().segments, 20 * MIB, GIB, 64 * MIB, "", "2.11", frozenset({OWN}))

    made = history(tmp_path, at)

    own = made.origins[3]
    assert (own.maker, own.memory_class) == ("the failing operation's own", MemoryClass.TEMPORARY)


def test_a_storage_in_two_blocks_is_one_in_the_history_each(tmp_path: Path) -> None:
    storages = {A: 0, WEIGHT: 0}

    made = history_at_failure(product(tmp_path), state(), storages, failure())

    assert [b.storage for s in made.segments for b in s.blocks] == [0, 3, -1, 4]
    assert made.origins[3] == made.origins[0]


@pytest.mark.parametrize(
    ("asked", "requested"),
    [(20 * MIB, 9 * MIB), (2 * MIB, MIB), (34 * MIB, 34 * MIB)],
    ids=["a storage of the operation", "a small one of its own", "a large one of its own"],
)
def test_the_request_is_that_of_a_storage_where_one_has_the_segment_asked_for(
    tmp_path: Path, asked: int, requested: int
) -> None:
    events = history(tmp_path, state(asked)).events

    assert events.action.tolist() == [Action.OUT_OF_MEMORY]
    assert (events.size.tolist(), events.node_id.tolist()) == ([requested], [10])


def test_a_request_that_the_allocator_tells_is_taken_as_told(tmp_path: Path) -> None:
    told = dataclasses.replace(state(), requested=11 * MIB)

    assert history(tmp_path, told).events.size.tolist() == [11 * MIB]


def test_inputs_that_do_not_fit_are_a_request_before_any_operation(tmp_path: Path) -> None:
    at = state_of(snapshot([segment(OWN, block(32 * MIB))]), 0, 20 * MIB, 40 * MIB, GIB)

    made = history_at_failure(product(tmp_path), at, {}, failure(None, None))

    assert (made.events.size.tolist(), made.events.node_id.tolist()) == ([9 * MIB], [-1])
    assert made.origins[int(made.events.storage[0])].maker == "input of aten::mm"


def test_the_failure_of_a_part_of_a_program_has_a_history_too(tmp_path: Path) -> None:
    a, b, c = (floats(number, 1536, 1536) for number in (11, 12, 13))
    program = program_of(tmp_path, call(9, "relu", [a], [b]), call(10, "mm", [b, b], [c]))
    part = part_of(program, lambda each: each.node.id == 10)

    made = history_at_failure(part, state(), {A: 1}, failure())

    assert made.origins[1] == Origin("aten::mm", (), MemoryClass.TEMPORARY)
    assert made.origins[int(made.events.storage[0])] == Origin("aten::mm", ())
    assert (made.events.size.tolist(), made.events.node_id.tolist()) == ([9 * MIB], [10])


def test_the_request_fails_again_and_what_is_live_adds_up_by_class(tmp_path: Path) -> None:
    found = explained(product(tmp_path), history(tmp_path))

    assert found is not None
    assert found.failure is not None
    assert (found.failure.node_id, found.failure.operator) == (10, "aten::mm")
    assert (found.failure.requested, found.failure.segment) == (9 * MIB, 20 * MIB)
    assert (found.failure.allocated, found.failure.reserved) == (50 * MIB, 52 * MIB)
    assert (found.failure.limit, found.failure.largest_free) == (64 * MIB, 2 * MIB)
    assert found.classes == {
        MemoryClass.LIBRARY: 32 * MIB,
        MemoryClass.INPUT: 9 * MIB,
        MemoryClass.WEIGHT: 9 * MIB,
    }
    assert (found.reserved.holes, found.reserved.largest_hole) == (2 * MIB, 2 * MIB)
    assert causes(found)[0] == (
        "The bytes would suffice: 2.00 MiB are reserved but free, and 12.0 MiB not reserved. But"
        " none of them is one range that the request may have: the largest hole in its reach is"
        " 2.00 MiB, and the device would have to give a segment of 20.0 MiB."
    )


def test_the_screen_names_the_operation_its_request_and_the_device(tmp_path: Path) -> None:
    program = product(tmp_path)
    made = result(program, history(tmp_path))
    explanation, ways_out = reasons_of(program, made, Moment.FAILURE)

    text = replay_text(made, explanation, ways_out)

    assert (
        "Out of memory: a request of 9.00 MiB (a segment of 20.0 MiB) does not fit the device of"
        " 1.05 GiB limited to 64.0 MiB, of which 50.0 MiB are allocated and 2.00 MiB are reserved"
        " but unallocated.\n"
        "  It failed at node 10, in aten::mm; 1 free block, the largest 2.00 MiB.\n"
    ) in text
    assert "  32.0 MiB  64.0 %       1  library workspaces\n" in text
    assert "What would fit 64.0 MiB" in text
    assert "Memory over time" not in text


def test_where_the_simulation_serves_the_request_the_measured_figures_stand(
    tmp_path: Path,
) -> None:
    program = product(tmp_path)
    roomy = history(tmp_path, state(limit=GIB))
    made = result(program, roomy)
    made.out_of_memory.limit = GIB  # type: ignore[union-attr]

    explanation, ways_out = reasons_of(program, made, Moment.FAILURE)

    assert explanation is None
    assert ways_out
    assert "the simulated allocator serves this request" in replay_text(made, None, ways_out)


def test_addresses_are_those_of_the_tensors_on_the_device(tmp_path: Path) -> None:
    replayed = held(product(tmp_path))
    slots = replayed._store.slots

    found = replayed._store.addresses()

    expected = {slots[t].untyped_storage().data_ptr(): t for t in range(2)}
    assert expected.items() <= found.items()


class FakeTorch:
    """Attaches observers, and shows one snapshot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: object) -> None:
        self.observers: list[Any] = []
        attach = "_cuda_attach_out_of_memory_observer"
        monkeypatch.setattr(torch._C, attach, self.observers.append, raising=False)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: content)


def test_a_watch_attaches_once_and_keeps_the_last_failure_of_its_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, watch = FakeTorch(monkeypatch, full()), OutOfMemoryWatch()

    watch.start(0)
    fake.observers[0](0, 4 * MIB, 64 * MIB, GIB)
    fake.observers[0](0, 20 * MIB, 64 * MIB, GIB)
    fake.observers[0](1, 30 * MIB, 64 * MIB, GIB)
    seen = watch.last()
    watch.start(0)

    assert len(fake.observers) == 1
    assert seen == state_of(full(), 0, 20 * MIB, 64 * MIB, GIB)
    assert watch.last() is None


def test_a_watch_that_is_over_heeds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, watch = FakeTorch(monkeypatch, full()), OutOfMemoryWatch()

    watch.start(0)
    watch.stop()
    fake.observers[0](0, 20 * MIB, 64 * MIB, GIB)

    assert watch.last() is None


def test_what_is_no_snapshot_is_no_error_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, watch = FakeTorch(monkeypatch, {"segments": ["not one"]}), OutOfMemoryWatch()

    watch.start(0)
    fake.observers[0](0, 20 * MIB, 64 * MIB, GIB)

    assert watch.last() is None


def test_an_allocator_that_takes_no_observer_is_not_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support attachOutOfMemoryObserver")

    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", refuse, raising=False)
    watch = OutOfMemoryWatch()

    watch.start(0)

    assert watch.last() is None


def test_a_simulated_device_needs_no_state(tmp_path: Path) -> None:
    failed = run(product(tmp_path), device="meta", device_memory=20 * MIB)

    assert failed.out_of_memory is not None
    assert failed.at_failure is None


def test_what_only_a_simulated_device_can_do_is_refused_on_a_real_one() -> None:
    flags = {"--page": False, "--explain peak": True}

    Target(torch.device("meta"), "cuda").refuse_simulated(flags)
    with pytest.raises(UsageError) as caught:
        Target(torch.device("cuda", 0), "cuda").refuse_simulated(flags)

    assert str(caught.value) == (
        "--explain peak is simulated, which cuda:0 is not: use --device cpu or --device meta."
    )
