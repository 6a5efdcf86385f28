"""Who gave memory back, where a device address was used, and which pool a request went to."""

from __future__ import annotations

import json
import lzma

import pytest
from history_rows import rows
from recorded_histories import recorded_on_h200
from snapshot_builder import MIB, block, entry, freed, segment, snapshot

from et_replay.events import Action
from et_replay.formats.device_ranges import PoolFinder, find_device_memory
from et_replay.formats.snapshot_events import read_events
from et_replay.formats.start_state import rebuild_start

A, B, C = 64 * MIB, 128 * MIB, 256 * MIB
POOL = (3, 0)


def cycle(address: int, size: int) -> list[dict]:
    """A segment that is allocated, used and idle again."""
    return [
        entry("segment_alloc", address, size),
        entry("alloc", address, size),
        *freed(address, size),
    ]


def actions(history) -> list[str]:
    return [row[0] for row in rows(history)]


def test_release_that_no_request_needed_is_one_empty_cache(read_history):
    history = read_history(
        snapshot(
            [segment(C, block(20 * MIB))],
            [
                *cycle(A, 20 * MIB),
                *cycle(B, 20 * MIB),
                entry("segment_alloc", C, 20 * MIB),
                entry("alloc", C, MIB * 2),
                entry("segment_free", A, 20 * MIB),
                entry("segment_free", B, 20 * MIB),
                *freed(C, MIB * 2),
                entry("alloc", C, 20 * MIB),
            ],
        )
    )

    assert actions(history)[-4:] == ["ALLOC", "EMPTY_CACHE", "FREE", "ALLOC"]
    assert history.device_addresses == (A, B, C)


def test_release_of_the_whole_cache_before_a_request_is_taken_for_empty_cache(read_history):
    history = read_history(
        snapshot(
            [segment(B, block(40 * MIB))],
            [
                *cycle(A, 20 * MIB),
                entry("segment_free", A, 20 * MIB),
                entry("segment_alloc", B, 40 * MIB),
                entry("alloc", B, 40 * MIB),
            ],
        )
    )

    assert actions(history) == ["ALLOC", "FREE", "EMPTY_CACHE", "ALLOC"]


def test_release_is_a_retry_where_the_device_could_not_have_given_more(read_history):
    history = read_history(
        snapshot(
            [segment(B, block(40 * MIB))],
            [
                *cycle(A, 20 * MIB),
                entry("segment_free", A, 20 * MIB),
                entry("segment_alloc", B, 40 * MIB),
                entry("alloc", B, 40 * MIB),
                entry("oom", 10 * MIB, 20 * MIB),
            ],
        )
    )

    assert history.device_memory == 50 * MIB
    assert actions(history) == ["ALLOC", "FREE", "ALLOC", "OUT_OF_MEMORY"]


def test_release_before_a_request_that_failed_was_the_requests(read_history):
    history = read_history(
        snapshot(
            [segment(B, block(20 * MIB))],
            [
                *cycle(A, 20 * MIB),
                entry("segment_alloc", B, 20 * MIB),
                entry("alloc", B, 20 * MIB),
                entry("segment_free", A, 20 * MIB),
                entry("oom", 10 * MIB, 50 * MIB),
            ],
        )
    )

    assert actions(history) == ["ALLOC", "FREE", "ALLOC", "OUT_OF_MEMORY"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", ["ALLOC", "FREE", "EMPTY_CACHE", "ALLOC", "OUT_OF_MEMORY"]),
        ("max_split_size_mb:32", ["ALLOC", "FREE", "ALLOC", "OUT_OF_MEMORY"]),
    ],
    ids=["any block serves", "large ones are for large requests"],
)
def test_release_of_what_would_have_served_the_request_is_the_programs(
    read_history, settings, expected
):
    """Of 50 MiB there are 40, of which 20 are asked for."""
    trace = [
        *cycle(A, 40 * MIB),
        entry("segment_free", A, 40 * MIB),
        entry("segment_alloc", B, 20 * MIB),
        entry("alloc", B, 20 * MIB),
        entry("oom", 30 * MIB, 40 * MIB),
    ]
    recorded = {"PYTORCH_CUDA_ALLOC_CONF": settings}
    history = read_history(
        snapshot([segment(B, block(20 * MIB))], trace, allocator_settings=recorded)
    )

    assert history.device_memory == 50 * MIB
    assert actions(history) == expected


def test_release_of_what_another_stream_had_until_then_may_be_the_requests(read_history):
    history = read_history(
        snapshot(
            [segment(B, block(20 * MIB)), segment(C, block(2 * MIB))],
            [
                entry("segment_alloc", A, 38 * MIB),
                entry("alloc", A, 38 * MIB),
                entry("free_requested", A, 38 * MIB),
                entry("segment_alloc", C, 2 * MIB),
                entry("alloc", C, 2 * MIB),
                entry("free_completed", A, 38 * MIB),
                entry("segment_free", A, 38 * MIB),
                entry("segment_alloc", B, 20 * MIB),
                entry("alloc", B, 20 * MIB),
                entry("oom", 28 * MIB, 40 * MIB),
            ],
        )
    )

    expected = ["ALLOC", "FREE_REQUESTED", "ALLOC", "FREE_COMPLETED", "ALLOC", "OUT_OF_MEMORY"]
    assert actions(history) == expected


@pytest.mark.parametrize(
    ("kind", "free", "by_program"),
    [
        (("segment_alloc", "segment_free"), 900 * MIB, False),
        (("segment_map", "segment_unmap"), 900 * MIB, True),
        (("segment_alloc", "segment_free"), 0, True),
    ],
    ids=["within a limit", "not of expandable segments", "not without a limit"],
)
def test_garbage_is_collected_of_segments_within_a_limit_of_the_process(
    read_history, kind, free, by_program
):
    """Of 100 MiB 40 are held, more than 30 %, and 60 are asked for."""
    growth, release = kind
    trace = [
        entry(growth, A, 40 * MIB),
        entry("alloc", A, 40 * MIB),
        *freed(A, 40 * MIB),
        entry(release, A, 40 * MIB),
        entry(growth, B, 60 * MIB),
        entry("alloc", B, 60 * MIB),
        entry(growth, C, 40 * MIB),
        entry("alloc", C, 40 * MIB),
        entry("oom", free, 50 * MIB),
    ]
    recorded = {"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.3"}
    end = [
        segment(address, block(size), is_expandable=growth == "segment_map")
        for address, size in ((B, 60 * MIB), (C, 40 * MIB))
    ]

    history = read_history(snapshot(end, trace, allocator_settings=recorded))

    assert history.device_memory == 100 * MIB
    assert ("EMPTY_CACHE" in actions(history)) is by_program


@pytest.mark.parametrize("share", ["nan", "inf", "-0.3", "1e-30", "1.5", "0", "x"])
def test_a_share_that_is_none_says_nothing_of_the_device(read_history, share):
    trace = [
        entry("segment_alloc", A, 30 * MIB),
        entry("alloc", A, 30 * MIB),
        entry("oom", 90 * MIB, 20 * MIB),
    ]
    recorded = {"PYTORCH_CUDA_ALLOC_CONF": f"per_process_memory_fraction:{share}"}

    history = read_history(
        snapshot([segment(A, block(30 * MIB))], trace, allocator_settings=recorded)
    )
    assert history.device_memory == 30 * MIB


def test_the_device_is_as_much_larger_as_settings_leave_of_it_to_others(read_history):
    """A request of 20 MiB failed at 30 MiB, though the device had 90 MiB."""
    trace = [
        entry("segment_alloc", A, 30 * MIB),
        entry("alloc", A, 30 * MIB),
        entry("oom", 90 * MIB, 20 * MIB),
    ]
    recorded = {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.25"}
    end = [segment(A, block(30 * MIB))]

    assert read_history(snapshot(end, trace)).device_memory == 30 * MIB
    limited = read_history(snapshot(end, trace, allocator_settings=recorded))
    assert limited.device_memory == 120 * MIB


def test_release_of_a_part_of_the_cache_before_a_request_is_the_allocators(read_history):
    history = read_history(
        snapshot(
            [segment(B, block(20 * MIB, "inactive")), segment(C, block(40 * MIB))],
            [
                *cycle(A, 30 * MIB),
                *cycle(B, 20 * MIB),
                entry("segment_free", A, 30 * MIB),
                entry("segment_alloc", C, 40 * MIB),
                entry("alloc", C, 40 * MIB),
            ],
        )
    )

    assert "EMPTY_CACHE" not in actions(history)
    assert history.notes == (
        "Releases of a part of the cache for a request, by garbage collection or in search of"
        " one large block: 1.",
    )


def test_every_empty_cache_of_recorded_streams_is_found_and_nothing_else(shared_data):
    for path in sorted((shared_data / "allocator/h200").glob("*.json.xz")):
        end, entries, settings = recorded_on_h200(path)
        marks = len(json.loads(lzma.decompress(path.read_bytes()))["marks"])
        start = rebuild_start(end, entries, settings).segments
        memory = find_device_memory(start, entries)
        recorded = read_events(start, entries, PoolFinder(end), memory, settings)
        found = int((recorded.log.events().action == Action.EMPTY_CACHE).sum())
        # mapping needs fewer pages than the limit is checked for: three retries look unneeded
        assert found == marks + (3 if "exp_cap_oom" in path.name else 0), path.name
        assert recorded.unknown == recorded.unseen == 0


def test_expandable_segment_takes_an_address_whenever_it_grows(read_history):
    mapped = [
        entry("segment_map", A, 20 * MIB),
        entry("alloc", A, 20 * MIB),
        entry("segment_map", A + 20 * MIB, 20 * MIB),
        entry("alloc", A + 20 * MIB, 20 * MIB),
        entry("segment_map", C, 20 * MIB),
        entry("alloc", C, 20 * MIB),
        *freed(A + 20 * MIB, 20 * MIB),
        entry("segment_unmap", A + 20 * MIB, 20 * MIB),
        entry("segment_map", A + 20 * MIB, 20 * MIB),
        entry("alloc", A + 20 * MIB, 20 * MIB),
    ]
    end = [
        segment(A, block(20 * MIB), block(20 * MIB), is_expandable=True),
        segment(C, block(20 * MIB), is_expandable=True),
    ]

    history = read_history(snapshot(end, mapped))

    again = A + 20 * MIB
    assert history.device_addresses == (A, again, C, again)


def test_expandable_segment_that_was_given_up_takes_an_address_again(read_history):
    mapped = [
        entry("segment_map", A, 20 * MIB),
        entry("alloc", A, 20 * MIB),
        *freed(A, 20 * MIB),
        entry("segment_unmap", A, 20 * MIB),
        entry("segment_map", A, 20 * MIB),
        entry("alloc", A, 20 * MIB),
    ]

    history = read_history(snapshot([segment(A, block(20 * MIB), is_expandable=True)], mapped))

    assert history.device_addresses == (A, A)


@pytest.mark.parametrize("recorded", [True, False], ids=["entries-tell", "segments-tell"])
def test_requests_of_a_private_pool_stand_between_its_begin_and_end(read_history, recorded):
    private = {"pool_id": POOL} if recorded else {}
    default = {"pool_id": (0, 0)} if recorded else {}
    content = snapshot(
        [segment(A, block(20 * MIB)), segment(B, block(20 * MIB), segment_pool_id=POOL)],
        [
            entry("segment_alloc", A, 20 * MIB, **default),
            entry("alloc", A, 20 * MIB, **default),
            entry("segment_alloc", B, 20 * MIB, **private),
            entry("alloc", B, 2 * MIB, **private),
            *(
                {**each, **private}
                for each in [*freed(B, 2 * MIB), entry("alloc", B, 20 * MIB), *freed(A, 20 * MIB)]
            ),
            entry("alloc", A, 20 * MIB, **default),
        ],
    )

    history = read_history(content)

    assert history.pools == (POOL,)
    assert [row[:4:3] for row in rows(history)] == [
        ("ALLOC", 0),
        ("POOL_BEGIN", -1),
        ("ALLOC", 0),
        ("FREE", 0),
        ("ALLOC", 0),
        ("FREE", 0),
        ("POOL_END", 0),
        ("ALLOC", 0),
    ]
    assert rows(history)[1][1] == POOL[0] * 2**32 + POOL[1]


def test_segment_of_a_private_pool_goes_back_after_all_uses_of_the_pool_ended(read_history):
    content = snapshot(
        [segment(A, block(20 * MIB))],
        [
            *({**each, "pool_id": POOL} for each in cycle(B, 20 * MIB)),
            entry("segment_alloc", A, 20 * MIB, pool_id=(0, 0)),
            entry("alloc", A, 2 * MIB, pool_id=(0, 0)),
            entry("segment_free", B, 20 * MIB, pool_id=POOL),
            *({**each, "pool_id": (0, 0)} for each in freed(A, 2 * MIB)),
            entry("alloc", A, 20 * MIB, pool_id=(0, 0)),
        ],
    )

    assert actions(read_history(content)) == [
        *("POOL_BEGIN", "ALLOC", "FREE", "POOL_END", "ALLOC", "POOL_RELEASE", "EMPTY_CACHE"),
        *("FREE", "ALLOC"),
    ]


def test_a_segment_of_a_private_pool_that_is_used_later_went_for_a_request(read_history):
    """As garbage collection does in some versions."""
    entries = [
        *cycle(A, 60 * MIB),
        entry("segment_alloc", B, 100 * MIB),
        entry("alloc", B, 100 * MIB),
        entry("segment_free", A, 60 * MIB),
        entry("segment_alloc", C, 200 * MIB),
        entry("alloc", C, 200 * MIB),
    ]
    segments = [segment(B, block(100 * MIB)), segment(C, block(200 * MIB))]
    content = snapshot(
        [{**each, "segment_pool_id": POOL} for each in segments],
        [{**each, "pool_id": POOL} for each in entries],
    )

    found = actions(read_history(content))
    assert found[:4] == ["POOL_BEGIN", "ALLOC", "FREE", "ALLOC"]
    assert "POOL_RELEASE" not in found
    assert found[-1] == "ALLOC"


def test_the_cache_is_emptied_outside_of_captures(read_history):
    content = snapshot(
        [segment(A, block(20 * MIB), segment_pool_id=POOL)],
        [
            *({**each, "pool_id": (0, 0)} for each in cycle(B, 20 * MIB)),
            entry("segment_alloc", A, 20 * MIB, pool_id=POOL),
            entry("alloc", A, 2 * MIB, pool_id=POOL),
            entry("segment_free", B, 20 * MIB, pool_id=(0, 0)),
            *({**each, "pool_id": POOL} for each in freed(A, 2 * MIB)),
            entry("alloc", A, 20 * MIB, pool_id=POOL),
        ],
    )

    assert actions(read_history(content)) == [
        *("ALLOC", "FREE", "POOL_BEGIN", "ALLOC", "POOL_END", "EMPTY_CACHE", "FREE"),
        *("POOL_BEGIN", "ALLOC"),
    ]
