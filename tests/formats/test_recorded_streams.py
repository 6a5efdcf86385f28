"""Recorded allocation streams: who allocates, waits, empties the cache, and in which pool."""

from __future__ import annotations

import gzip
import json

import pytest
from history_rows import rows

from et_replay.errors import TraceError

STREAMS = {
    "streams": [0, 1],
    "allocations": [
        [1000, 0, 0, 0, 3, 4],
        [2000, 1, 5, 2, 5, 7],
        [3000, 0, 0, 8, None, None],
    ],
    "events": [
        [0, "a", 0],
        [1, "begin"],
        [2, "a", 1],
        [3, "f", 0],
        [4, "c", 0],
        [5, "f", 1],
        [6, "end"],
        [7, "c", 1],
        [8, "a", 2],
        [9, "cache"],
        [10, "mark", "forward"],
    ],
    "expected": {"peak_reserved": 4 << 20},
}


def changed(**others: object) -> str:
    return json.dumps({**STREAMS, **others})


def test_events_are_read_with_their_streams_pools_and_waiting_frees(read_history):
    history = read_history(gzip.compress(json.dumps(STREAMS).encode()))

    assert history.kind == "recorded streams"
    assert history.pools == ((0, 5),)
    assert history.notes == ("Recorded peak reserved: 4.00 MiB.",)
    assert [row[:4] for row in rows(history)] == [
        ("ALLOC", 0, 1000, 0),
        ("POOL_BEGIN", 5, 0, -1),
        ("ALLOC", 1, 2000, 1),
        ("FREE", 0, 1000, 0),
        ("FREE_REQUESTED", 1, 2000, 1),
        ("POOL_END", 5, 0, 0),
        ("FREE_COMPLETED", 1, 2000, 1),
        ("ALLOC", 2, 3000, 0),
        ("EMPTY_CACHE", -1, 0, 0),
    ]
    assert not history.addresses.any()


def test_frees_complete_at_once_where_no_completion_was_recorded(read_history):
    events = [event for event in STREAMS["events"] if event[1] != "c"]

    history = read_history(changed(events=events))

    assert [row[0] for row in rows(history)].count("FREE") == 2


def test_the_largest_pool_that_an_event_can_name_is_read(read_history):
    history = read_history(
        changed(allocations=[[1, 0, 2**32 - 1]], events=[[0, "begin"], [1, "a", 0], [2, "end"]])
    )

    assert history.pools == ((0, 2**32 - 1),)
    assert rows(history)[0][:2] == ("POOL_BEGIN", 2**32 - 1)


def test_unknown_events_are_left_out_and_counted(read_history):
    history = read_history(changed(events=[[0, "a", 0], [1, "novel"]]))

    assert len(history.events) == 1
    assert history.notes[0] == "Left out: 1 event of a kind that is not known."


@pytest.mark.parametrize(
    ("others", "what"),
    [
        ({"allocations": 5}, "holds no recorded streams: Expected `array`, got `int`"),
        ({"allocations": [[1]]}, "holds no recorded streams"),
        ({"events": [[0]]}, r"events\[0\] has no action"),
        ({"events": [[0, 5]]}, r"events\[0\] has no action"),
        ({"events": [[0, "a"]]}, r"events\[0\] has no allocation of the file"),
        ({"events": [[0, "a", 3]]}, r"events\[0\] has no allocation of the file"),
        ({"events": [[0, "f", 0]]}, r"events\[0\] has an allocation that is not live"),
        ({"events": [[0, "a", 0], [1, "a", 0]]}, r"events\[1\] has an allocation that"),
        (
            {"allocations": [[-1, 0, 0]]},
            r"events\[0\] has an allocation of -1 bytes, expected 0 to",
        ),
        (
            {"allocations": [[1, -3, 0]]},
            r"an allocation on the stream -3, expected 0 to 92233720368",
        ),
        ({"allocations": [[1, 1 << 63, 0]]}, "holds no recorded streams: "),
        (
            {"allocations": [[(1 << 61) + 1, 0, 0]]},
            "an allocation of 2305843009213693953 bytes, expected 0 to 2305843009213693952",
        ),
        (
            {"allocations": [[1, 0, 1 << 32]]},
            r"events\[0\] has an allocation in the pool 4294967296, expected 0 to 4294967295",
        ),
        ({"allocations": [[1, 0, -5]]}, r"events\[0\] has an allocation in the pool -5, expected"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_place(read_history, others, what):
    with pytest.raises(TraceError, match=what):
        read_history(changed(**others))
