"""The vocabulary of allocation events: names of pools, and to which a request goes."""

from __future__ import annotations

import numpy as np
import pytest

from et_replay.events import Action, AllocationEvents, pool_id, pool_number, routed_pools

ALLOC, BEGIN, END = Action.ALLOC, Action.POOL_BEGIN, Action.POOL_END


def routed(*rows: tuple[Action, int, int]) -> list[int]:
    """Return the pools of events of (action, storage, stream), which are those of requests."""
    action, storage, stream = np.array(rows, dtype=np.int64).T
    nothing = np.zeros(len(rows), dtype=np.int64)
    events = AllocationEvents(
        action.astype(np.int8), storage, nothing, stream, nothing, nothing[:0]
    )
    return [
        pool
        for pool, row in zip(routed_pools(events).tolist(), rows, strict=True)
        if row[0] == ALLOC
    ]


@pytest.mark.parametrize(("pool", "number"), [((0, 0), 0), ((0, 7), 7), ((3, 1), 3 * 2**32 + 1)])
def test_a_pool_has_a_number_that_tells_its_id(pool: tuple[int, int], number: int) -> None:
    assert pool_number(pool) == number
    assert pool_id(number) == pool


def test_requests_go_to_a_pool_from_its_begin_to_its_end() -> None:
    assert routed((ALLOC, 0, 0), (BEGIN, 5, -1), (ALLOC, 1, 0), (END, 5, 0), (ALLOC, 2, 0)) == [
        0,
        5,
        0,
    ]


def test_a_pool_of_one_stream_takes_its_requests_alone() -> None:
    assert routed((BEGIN, 5, 2), (ALLOC, 0, 2), (ALLOC, 1, 3)) == [5, 0]


def test_of_several_pools_the_one_begun_last_takes_a_request() -> None:
    begun = (BEGIN, 5, -1), (BEGIN, 6, 2)
    assert routed(*begun, (ALLOC, 0, 2), (ALLOC, 1, 3)) == [6, 5]
    assert routed(*begun, (END, 6, 0), (ALLOC, 0, 2)) == [5]
    assert routed(*begun, (END, 5, 0), (ALLOC, 0, 2), (ALLOC, 1, 3)) == [6, 0]
