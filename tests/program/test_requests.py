"""RecordedRequests: what of the recorded events comes and goes, and what a plan starts from."""

from __future__ import annotations

import numpy as np

from et_replay.events import Action, AllocationEvents
from et_replay.program.requests import RecordedRequests

KIB = 1024


def recorded(*changes: str, steps: list[int]) -> RecordedRequests:
    """Make requests of `+storage` and `-storage`; storage n has n KiB, stream n + 10, node n + 20.

    `steps` are those of the steady iteration.
    """
    storage = np.array([int(change[1:]) for change in changes], dtype=np.int64)
    action = [Action.ALLOC if change[0] == "+" else Action.FREE for change in changes]
    events = AllocationEvents(
        action=np.array(action, dtype=np.int8),
        storage=storage,
        size=storage * KIB,
        stream=storage + 10,
        node_id=storage + 20,
        steps=np.array(steps, dtype=np.int64),
    )
    return RecordedRequests(events, {})


def changes(events: AllocationEvents) -> str:
    """Write the events down as `recorded` takes them, with a bar where a step begins or ends."""
    starts = events.steps.tolist()
    words = []
    for row in range(len(events) + 1):
        words += ["|"] * starts.count(row)
        if row < len(events):
            sign = "+" if events.action[row] == Action.ALLOC else "-"
            words.append(f"{sign}{events.storage[row]}")
    return " ".join(words)


def test_only_what_the_steady_iteration_asks_for_and_frees_passes() -> None:
    """1 lives throughout, 2 is of an earlier iteration, 4 is kept, 6 is from before and freed."""
    requests = recorded(
        *("+1", "+2", "-2", "+6"), *("+2", "+3", "-3"), *("+4", "-6"), "-2", steps=[4, 7, 9, 10]
    )
    assert changes(requests.passing()) == "| +2 +3 -3 | | -2 |"


def test_what_comes_twice_in_an_iteration_passes_twice() -> None:
    requests = recorded("+9", "+2", "-2", "+2", "-2", steps=[1, 3, 5])
    assert changes(requests.passing()) == "| +2 -2 | +2 -2 |"


def test_an_iteration_that_frees_nothing_lets_nothing_pass() -> None:
    assert changes(recorded("+1", "+2", "+3", steps=[1, 2, 3]).passing()) == "| | |"


def test_what_an_earlier_iteration_freed_does_not_last() -> None:
    requests = recorded("+1", "+2", "-2", "+3", "+2", "-2", steps=[4, 5, 6])
    assert changes(requests.lasting_and_steady()) == "+1 +3 | +2 | -2 |"


def test_what_lasts_comes_in_the_order_of_its_last_request() -> None:
    requests = recorded("+1", "+2", "-1", "+3", "+1", "+4", "-4", steps=[5, 7])
    assert changes(requests.lasting_and_steady()) == "+2 +3 +1 | +4 -4 |"


def test_the_steady_iteration_may_free_what_lasts() -> None:
    requests = recorded("+1", "+2", "-2", "-1", steps=[3, 4])
    assert changes(requests.lasting_and_steady()) == "+1 | -1 |"


def test_sizes_streams_and_nodes_stay_with_their_storages() -> None:
    requests = recorded("+1", "+5", "+7", "-7", steps=[2, 3, 4])
    for events, storages in ((requests.passing(), [7, 7]), (requests.lasting_and_steady(), [])):
        expected = storages or [1, 5, 7, 7]
        assert events.storage.tolist() == expected
        assert events.size.tolist() == [storage * 1024 for storage in expected]
        assert events.stream.tolist() == [storage + 10 for storage in expected]
        assert events.node_id.tolist() == [storage + 20 for storage in expected]


def test_a_replay_of_no_operations_has_no_requests() -> None:
    requests = recorded(steps=[0])
    assert changes(requests.passing()) == changes(requests.lasting_and_steady()) == "|"
