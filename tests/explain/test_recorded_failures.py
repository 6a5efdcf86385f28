"""Streams recorded on an H200 under a limit: the same requests fail, with the same figures."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from allocator.test_recordings import rows_of
from made_histories import history

from et_replay.events import Action, MemoryHistory
from et_replay.explain import Explanation, explain
from et_replay.explain.explanation import Failures

GROWTHS, RELEASES = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


def recording(shared_data: Path, name: str) -> dict[str, Any]:
    path = shared_data / "allocator" / "h200" / f"{name}.json.xz"
    return json.loads(lzma.decompress(path.read_bytes()))


def history_of(recorded: dict[str, Any]) -> MemoryHistory:
    """Return what the job asked for, behind the block that had come and gone before."""
    entries = recorded["events"]
    asked = sum(size for action, _, size, _ in entries if action == "alloc")
    warm_up = len(entries), recorded["stats"]["requested_bytes.all.allocated"] - asked
    return history(
        (Action.ALLOC, *warm_up),
        (Action.FREE, *warm_up),
        (Action.EMPTY_CACHE, -1, 0),
        (Action.EMPTY_CACHE, -1, 0),
        *(row[:4] for row in rows_of(recorded)),
        settings=recorded["spec"]["conf"],
        device_addresses=[0, *(each[1] for each in entries if each[0] in GROWTHS)],
        device_memory=recorded["total"],
    )


def explained(recorded: dict[str, Any], made: MemoryHistory) -> Explanation | None:
    settings = recorded["spec"]["conf"]
    return explain(
        made,
        f"native:{settings}" if settings else "native",
        recorded["total"],
        torch_version="2.11",
        fraction=recorded["fraction"],
    )


def rows_that_failed(made: MemoryHistory) -> tuple[int, ...]:
    actions = made.events.action.tolist()
    return tuple(row for row, action in enumerate(actions) if action == Action.OUT_OF_MEMORY)


def held(entries: Iterable[list[Any]], more: tuple[str, ...], less: tuple[str, ...]) -> int:
    """Add up the sizes of what the recording says was taken, without what was given back."""
    return sum(size * ((action in more) - (action in less)) for action, _, size, _ in entries)


@pytest.mark.parametrize(
    ("name", "failures"),
    [("cap_large_oom", 31), ("exp_cap_oom", 21), ("maxsplit32_cap", 24)],
)
def test_the_recorded_requests_fail_and_only_those(
    shared_data: Path, name: str, failures: int
) -> None:
    recorded = recording(shared_data, name)
    made = history_of(recorded)
    expected = rows_that_failed(made)
    assert len(expected) == failures
    explanation = explained(recorded, made)
    assert explanation is not None
    assert explanation.failures == Failures(reproduced=expected)


@pytest.mark.parametrize("name", ["cap_mixed", "exp_cap_mixed"])
def test_where_none_was_recorded_to_fail_none_does(shared_data: Path, name: str) -> None:
    recorded = recording(shared_data, name)
    made = history_of(recorded)
    assert rows_that_failed(made) == ()
    assert explained(recorded, made) is None


@pytest.mark.parametrize("name", ["cap_large_oom", "exp_cap_oom", "maxsplit32_cap"])
def test_the_last_failure_has_the_recorded_figures(shared_data: Path, name: str) -> None:
    """The recording has no counters at a failure: they are added up from what came before."""
    recorded = recording(shared_data, name)
    entries = recorded["events"]
    last = max(index for index, each in enumerate(entries) if each[0] == "oom")
    _, _, size, stream = entries[last]
    explanation = explained(recorded, history_of(recorded))
    assert explanation is not None
    failure = explanation.failure
    assert failure is not None
    assert (failure.requested, explanation.request.stream) == (size, stream)
    assert failure.reserved == held(entries[:last], GROWTHS, RELEASES)
    assert failure.reserved == explanation.statistics.reserved_bytes
    assert failure.allocated == explanation.statistics.allocated_bytes
    assert explanation.reserved.requested == held(entries[:last], ("alloc",), ("free_requested",))
    assert explanation.statistics.ooms == recorded["stats"]["num_ooms"]
    assert failure.largest_free == explanation.reserved.largest_free
