"""The start of a history, rebuilt from its end, is the one that it had."""

from __future__ import annotations

import random

import pytest
from address_walk import AddressWalk, layout
from history_rows import blocks, rows
from recorded_histories import recordings
from snapshot_builder import MIB, block, entry, freed, segment, snapshot

from et_replay.formats import open_recording
from et_replay.formats.allocator_settings import settings_from_text
from et_replay.formats.start_state import rebuild_start

A, B = 64 * MIB, 256 * MIB
IDLE = "inactive"


def test_block_freed_since_was_live_at_the_start_and_one_allocated_since_was_not(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(4 * MIB), block(16 * MIB, IDLE))],
            [*freed(A, 4 * MIB), entry("alloc", A, 4 * MIB)],
        )
    )

    assert blocks(history) == [(A, 4 * MIB, 0), (A + 4 * MIB, 16 * MIB, -1)]
    assert [row[:2] for row in rows(history)] == [("FREE", 0), ("ALLOC", 1)]


def test_rest_too_small_to_be_a_block_belongs_to_the_block_before_it(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(4 * MIB, IDLE), block(16 * MIB))],
            freed(A, 3 * MIB - 7),
        )
    )

    assert blocks(history) == [(A, 4 * MIB, 0), (A + 4 * MIB, 16 * MIB, 1)]


def test_block_reaches_to_where_the_next_allocation_behind_it_began(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(20 * MIB, IDLE))],
            [
                entry("alloc", A + 3 * MIB + 512, 2 * MIB),
                *freed(A + 3 * MIB + 512, 2 * MIB),
                *freed(A, 3 * MIB),
            ],
        )
    )

    assert blocks(history)[0] == (A, 3 * MIB + 512, 0)
    assert history.notes == (
        "The history begins with 1 segment and 1 live block, which were rebuilt from its end.",
    )


def test_allocation_behind_a_block_that_was_freed_by_then_proves_nothing(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(20 * MIB, IDLE))],
            [
                *freed(A, 3 * MIB),
                entry("alloc", A + 3 * MIB + 512, 2 * MIB),
                *freed(A + 3 * MIB + 512, 2 * MIB),
            ],
        )
    )

    assert blocks(history)[0] == (A, 3 * MIB, 0)
    assert history.notes[1] == (
        "Of 1 of these blocks, nothing proves the size: each may be up to 1 MiB larger."
    )


def test_small_blocks_are_as_large_as_their_rounded_request(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(1024, IDLE), block(2 * MIB - 1024))],
            freed(A, 5),
        )
    )

    assert blocks(history)[:2] == [(A, 512, 0), (A + 512, 512, -1)]


def test_oversize_block_is_its_whole_segment(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(60 * MIB, IDLE))],
            freed(A, 50 * MIB),
            allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:40"},
        )
    )

    assert blocks(history) == [(A, 60 * MIB, 0)]


def test_segments_that_came_and_went_are_taken_off_and_put_back(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(20 * MIB), segment_pool_id=(0, 0))],
            [
                entry("segment_free", B, 2 * MIB, 5),
                entry("segment_alloc", A, 20 * MIB),
                entry("alloc", A, 20 * MIB),
            ],
        )
    )

    (start,) = history.segments
    assert (start.address, start.size, start.stream, start.small) == (B, 2 * MIB, 5, True)


def test_mapped_ranges_grow_together_and_fall_apart(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(40 * MIB), is_expandable=True)],
            [
                entry("segment_unmap", A + 40 * MIB, 20 * MIB),
                entry("segment_map", A + 20 * MIB, 20 * MIB),
                entry("alloc", A, 40 * MIB),
            ],
        )
    )

    assert [(s.address, s.size, s.expandable) for s in history.segments] == [
        (A, 20 * MIB, True),
        (A + 40 * MIB, 20 * MIB, True),
    ]


def test_block_waiting_at_the_start_is_active_only(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(20 * MIB, IDLE)), segment(B, block(20 * MIB))],
            [entry("free_completed", A, 20 * MIB), *freed(B, 9), entry("alloc", B, 20 * MIB)],
        )
    )

    assert [s.blocks[0].active_only for s in history.segments] == [True, False]
    assert rows(history)[0][:2] == ("FREE_COMPLETED", 0)


def test_contradictions_are_left_out_and_counted(read_history):
    history = read_history(
        snapshot(
            [segment(A, block(20 * MIB))],
            [
                *freed(B, 512),  # nothing is reserved there
                entry("segment_alloc", B, 20 * MIB),  # nor in the end
                entry("alloc", A, 20 * MIB),
                entry("alloc", A, 20 * MIB),  # without a free in between
            ],
        )
    )

    assert [row[:2] for row in rows(history)] == [("ALLOC", 0), ("FREE", 0), ("ALLOC", 1)]
    assert history.notes[-1].startswith("Entries that contradict the others: ")


def test_a_range_given_back_twice_was_there_once(read_history):
    given_back = entry("segment_unmap", A, 20 * MIB)

    history = read_history(snapshot([], [*freed(A, 20 * MIB), given_back, given_back]))

    assert [(each.address, each.size) for each in history.segments] == [(A, 20 * MIB)]
    assert history.notes[-1].startswith("Entries that contradict the others: 1")


@pytest.mark.parametrize("action", ["free_requested", "free_completed"])
def test_half_of_each_free_is_enough(read_history, action):
    content = snapshot(
        [segment(A, block(20 * MIB, IDLE))],
        [entry("segment_alloc", A, 20 * MIB), entry("alloc", A, 9), entry(action, A, 9)],
    )

    history = read_history(content)

    assert [row[:2] for row in rows(history)] == [("ALLOC", 0), ("FREE", 0)]
    assert "is taken to follow at once" in history.notes[0]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("", {1: 512, 512: 512, 513: 1024, 3 * MIB + 1: 3 * MIB + 512}),
        ("roundup_power2_divisions:4", {2049: 2560, 5 * MIB + 1: 6 * MIB, 4 * MIB: 4 * MIB}),
        (
            "roundup_power2_divisions:[2:4,>:2]",
            {3 * MIB + 1: 3 * MIB + MIB // 2, 5 * MIB: 6 * MIB, 1025: 1536},
        ),
        ("roundup_power2_divisions:1", {1025: 1536}),
    ],
)
def test_requests_are_rounded_as_the_settings_say(text, sizes):
    settings = settings_from_text(text)

    assert {size: settings.rounded(size) for size in sizes} == sizes


def test_every_real_history_leads_from_its_rebuilt_start_to_its_recorded_end(shared_data):
    for name, (end, entries, settings) in recordings(shared_data):
        start = rebuild_start(end, entries, settings)
        walk = AddressWalk(start.segments, settings)

        walk.walk(entries)

        assert walk.state() == layout(end), name
        assert start.strays == 0


def test_history_cut_anywhere_gives_the_state_there_up_to_what_nothing_proves(shared_data):
    generator, wrong, total = random.Random(0), 0, 0
    for name, (end, entries, settings) in recordings(shared_data):
        walk = AddressWalk(rebuild_start(end, entries, settings).segments, settings)
        done = 0
        for cut in sorted(generator.sample(range(len(entries)), 6)):
            walk.walk(entries[done:cut])
            done = cut
            start = rebuild_start(end, entries[cut:], settings)
            was, now = (_live(state) for state in (walk.state(), layout(start.segments)))
            assert was.keys() == now.keys(), (name, cut)
            assert start.strays == 0
            differing = sum(was[address] != now[address] for address in was)
            assert differing <= start.guessed
            wrong, total = wrong + differing, total + len(was)
    assert total > 20_000
    assert wrong <= total // 500


def _live(state) -> dict[int, tuple[int, str]]:
    return {at: (size, kind) for _, part in state for at, size, kind in part if kind != "free"}


def test_best_fit_in_the_rebuilt_start_gives_every_recorded_address(shared_data):
    checked = 0
    for name, (end, entries, settings) in recordings(shared_data):
        if settings.expandable or settings.max_split is not None:
            continue
        for cut in (0, len(entries) // 2):
            kept = entries[cut:]
            walk = AddressWalk(rebuild_start(end, kept, settings).segments, settings)
            for each in kept:
                if each.action == "alloc":
                    assert walk.best_fit(each) == each.address, (name, cut, each)
                    checked += 1
                walk.walk([each])
    assert checked > 50_000


def test_history_in_the_middle_of_a_training_run_frees_what_was_there_before(shared_data):
    history = open_recording(shared_data / "snapshots/bcrafton_midlife.pickle")

    freed_since = {row[1] for row in rows(history) if row[0] == "FREE"}
    assert sum(storage in freed_since for _, _, storage in blocks(history)) == 222
