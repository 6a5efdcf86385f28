"""Where reserved bytes are: every field by hand, and all of them together are what is reserved."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_replay.events import BlockState, SegmentState
from et_replay.explain import ReservedBytes
from et_replay.explain.fragmentation import Request, pinned_segments, split_reserved

MIB = 2**20
POOL = (3, 1)
LARGE = Request(30 * MIB)
FREE = -1
COUNTS = ("free_blocks", "largest_free", "largest_hole")

Part = tuple[int, int, int] | tuple[int, int, int, bool]
"""Size, requested size, storage, and whether it only waits for another stream."""


def segment(
    *parts: Part,
    address: int = 2**40,
    stream: int = 0,
    small: bool = False,
    pool: tuple[int, int] = (0, 0),
) -> SegmentState:
    blocks, end = [], address
    for part in parts:
        size, requested, storage, waits = (*part, False)[:4]
        blocks.append(BlockState(end, size, requested, storage, waits))
        end += size
    return SegmentState(address, end - address, stream, small, False, pool, tuple(blocks))


def parts_of(reserved: ReservedBytes) -> dict[str, int]:
    """Return the fields that are not 0."""
    return {name: value for name, value in dataclasses.asdict(reserved).items() if value}


def total(reserved: ReservedBytes) -> int:
    return sum(value for name, value in dataclasses.asdict(reserved).items() if name not in COUNTS)


def test_nothing_reserved_is_nothing_anywhere() -> None:
    assert split_reserved([], LARGE) == ReservedBytes()


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ((512, 512, 0), {"requested": 512}),
        ((512, 1, 0), {"requested": 1, "rounding": 511}),
        ((1024, 513, 0), {"requested": 513, "rounding": 511}),
        # A rest of 1 MiB is not split off a block of more than 1 MiB.
        ((12 * MIB, 11 * MIB, 0), {"requested": 11 * MIB, "unsplit": MIB}),
        (
            (12 * MIB, 11 * MIB + 3, 0),
            {"requested": 11 * MIB + 3, "rounding": 509, "unsplit": MIB - 512},
        ),
        # roundup_power2_divisions:4 makes 10 MiB of 8 MiB and a byte.
        (
            (10 * MIB, 8 * MIB + 1, 0),
            {"requested": 8 * MIB + 1, "rounding": 511, "unsplit": 2 * MIB - 512},
        ),
        ((12 * MIB, 11 * MIB, 0, True), {"awaiting": 12 * MIB}),
    ],
)
def test_a_live_block_is_what_was_asked_for_its_rounding_and_its_rest(
    block: Part, expected: dict[str, int]
) -> None:
    reserved = split_reserved([segment(block)], LARGE)
    assert parts_of(reserved) == expected
    assert total(reserved) == block[0]


def test_free_bytes_beside_live_blocks_are_holes_and_whole_segments_are_idle() -> None:
    reserved = split_reserved(
        [
            segment((8 * MIB, 0, FREE), (4 * MIB, 4 * MIB, 7), (28 * MIB, 0, FREE)),
            segment((20 * MIB, 0, FREE), address=2**41),
        ],
        LARGE,
    )
    assert reserved == ReservedBytes(
        requested=4 * MIB,
        holes=36 * MIB,
        idle=20 * MIB,
        free_blocks=3,
        largest_free=28 * MIB,
        largest_hole=28 * MIB,
    )
    assert reserved.free == 56 * MIB
    assert total(reserved) == 60 * MIB


def test_a_block_that_waits_for_another_stream_keeps_its_segment() -> None:
    reserved = split_reserved([segment((4 * MIB, 4 * MIB, 0, True), (16 * MIB, 0, FREE))], LARGE)
    assert parts_of(reserved) == {
        "awaiting": 4 * MIB,
        "holes": 16 * MIB,
        "free_blocks": 1,
        "largest_free": 16 * MIB,
        "largest_hole": 16 * MIB,
    }


@pytest.mark.parametrize("live", [(), ((2 * MIB, 2 * MIB, 0),)])
def test_another_stream_s_free_bytes_are_stranded(live: tuple[Part, ...]) -> None:
    reserved = split_reserved([segment(*live, (64 * MIB, 0, FREE), stream=7)], LARGE)
    assert (reserved.streams, reserved.holes, reserved.idle) == (64 * MIB, 0, 0)
    assert (reserved.largest_free, reserved.largest_hole) == (64 * MIB, 0)


def test_free_bytes_of_the_request_s_own_stream_are_in_its_reach() -> None:
    reserved = split_reserved([segment((64 * MIB, 0, FREE), stream=7)], Request(MIB * 30, 7))
    assert (reserved.idle, reserved.streams, reserved.largest_hole) == (64 * MIB, 0, 64 * MIB)


@pytest.mark.parametrize(
    ("size", "small_reserved", "large_reserved"),
    [
        (1, {"idle": 2 * MIB}, {"sizes": 20 * MIB}),
        (MIB, {"idle": 2 * MIB}, {"sizes": 20 * MIB}),
        (MIB + 1, {"sizes": 2 * MIB}, {"idle": 20 * MIB}),
    ],
)
def test_requests_up_to_1_mib_have_segments_of_their_own(
    size: int, small_reserved: dict[str, int], large_reserved: dict[str, int]
) -> None:
    for small, expected in ((True, small_reserved), (False, large_reserved)):
        parts = segment(((2 if small else 20) * MIB, 0, FREE), small=small)
        reserved = split_reserved([parts], Request(size))
        assert {name: getattr(reserved, name) for name in expected} == expected
        assert reserved.free == total(reserved)


def test_a_private_pool_s_free_bytes_serve_no_request_outside_of_it() -> None:
    reserved = split_reserved(
        [segment((2 * MIB, 2 * MIB, 0), (62 * MIB, 0, FREE), pool=POOL)], LARGE
    )
    assert parts_of(reserved) == {
        "requested": 2 * MIB,
        "pools": 62 * MIB,
        "free_blocks": 1,
        "largest_free": 62 * MIB,
    }


def test_a_request_of_a_private_pool_cannot_use_the_default_pool() -> None:
    reserved = split_reserved([segment((64 * MIB, 0, FREE))], Request(30 * MIB, 0, POOL))
    assert (reserved.pools, reserved.largest_hole) == (64 * MIB, 0)


def test_a_request_of_a_private_pool_may_use_the_holes_of_that_pool() -> None:
    reserved = split_reserved(
        [segment((2 * MIB, 2 * MIB, 0), (62 * MIB, 0, FREE), pool=POOL)],
        Request(30 * MIB, 0, POOL),
    )
    assert (reserved.holes, reserved.pools, reserved.largest_hole) == (62 * MIB, 0, 62 * MIB)


def test_an_idle_segment_of_the_request_s_own_pool_is_where_it_may_look() -> None:
    """The allocator searches the pool's free blocks first, whether or not their segment is idle."""
    reserved = split_reserved([segment((62 * MIB, 0, FREE), pool=POOL)], Request(70 * MIB, 0, POOL))
    assert (reserved.idle, reserved.pools) == (62 * MIB, 0)
    assert reserved.largest_hole == 62 * MIB


def test_a_pool_counts_before_a_stream_and_a_stream_before_a_size() -> None:
    reserved = split_reserved(
        [
            segment((2 * MIB, 0, FREE), stream=7, small=True, pool=POOL),
            segment((2 * MIB, 0, FREE), stream=7, small=True, address=2**41),
        ],
        LARGE,
    )
    assert (reserved.pools, reserved.streams, reserved.sizes) == (2 * MIB, 2 * MIB, 0)


def test_pinned_segments_come_most_free_bytes_first() -> None:
    little = segment((6 * MIB, 6 * MIB, 1), (14 * MIB, 0, FREE))
    much = segment(
        (2 * MIB, 2 * MIB, 4),
        (20 * MIB, 0, FREE),
        (6 * MIB, 5 * MIB, 5),
        (36 * MIB, 0, FREE),
        address=2**41,
    )
    first, second = pinned_segments([little, much], LARGE)
    assert (first.size, first.free, first.live, first.live_blocks) == (
        64 * MIB,
        56 * MIB,
        8 * MIB,
        2,
    )
    assert (second.size, second.free, second.live, second.live_blocks) == (
        20 * MIB,
        14 * MIB,
        6 * MIB,
        1,
    )


@pytest.mark.parametrize(
    "not_pinned",
    [
        segment((20 * MIB, 0, FREE)),
        segment((20 * MIB, 20 * MIB, 0)),
        segment((4 * MIB, 4 * MIB, 0), (16 * MIB, 0, FREE), stream=7),
        segment((MIB, MIB, 0), (MIB, 0, FREE), small=True),
        segment((4 * MIB, 4 * MIB, 0), (16 * MIB, 0, FREE), pool=POOL),
    ],
    ids=["idle", "full", "other stream", "small", "private pool"],
)
def test_only_segments_in_reach_with_live_blocks_and_holes_are_pinned(
    not_pinned: SegmentState,
) -> None:
    assert pinned_segments([not_pinned], LARGE) == []


PARTS = st.lists(
    st.tuples(
        st.integers(1, 40).map(lambda n: n * 512),
        st.integers(0, 511),
        st.integers(-1, 3),
        st.booleans(),
    ).map(lambda p: (p[0], max(1, p[0] - p[1]), p[2], p[3] and p[2] >= 0)),
    min_size=1,
    max_size=6,
)
SEGMENTS = st.lists(
    st.builds(
        lambda parts, stream, small, pool: segment(*parts, stream=stream, small=small, pool=pool),
        PARTS,
        st.sampled_from([0, 7]),
        st.booleans(),
        st.sampled_from([(0, 0), POOL]),
    ),
    max_size=5,
)


@given(
    SEGMENTS,
    st.builds(
        Request,
        st.sampled_from([1, MIB, MIB + 1]),
        st.sampled_from([0, 7]),
        st.sampled_from([(0, 0), POOL]),
    ),
)
def test_every_reserved_byte_is_counted_once(
    segments: list[SegmentState], request: Request
) -> None:
    reserved = split_reserved(segments, request)
    blocks = [block for each in segments for block in each.blocks]
    free = [block.size for block in blocks if block.storage < 0]
    assert total(reserved) == sum(each.size for each in segments)
    assert reserved.free == sum(free)
    assert (reserved.free_blocks, reserved.largest_free) == (len(free), max(free, default=0))
    assert reserved.awaiting == sum(block.size for block in blocks if block.active_only)
    assert sum(each.free for each in pinned_segments(segments, request)) == reserved.holes
