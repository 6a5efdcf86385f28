"""Causes: the sentences that say why a request failed name what really kept it out."""

from __future__ import annotations

from made_histories import explained, history

from et_replay.events import Action
from et_replay.explain import Case, find_way_out
from et_replay.explain.causes import causes

MIB = 2**20
ALLOC, FREE, BEGIN = Action.ALLOC, Action.FREE, Action.POOL_BEGIN


def test_what_lives_and_the_request_may_be_more_than_the_device() -> None:
    (text,) = causes(explained(history((ALLOC, 0, 60 * MIB), (ALLOC, 1, 50 * MIB)), 100 * MIB))
    assert text.startswith("What is live and the request ask for 10.0 MiB more than there is")


def test_no_allocator_is_ruled_out_for_rests_that_only_this_one_leaves() -> None:
    """Three blocks of 11 MiB take 12 MiB each here; their owners asked for 33 MiB, and 6 more."""
    made = history(*((ALLOC, k, 11 * MIB) for k in range(3)), (ALLOC, 3, 6 * MIB))
    explanation = explained(made, 40 * MIB)
    assert explanation.reserved.unsplit == 3 * MIB
    ideal = next(o for o in find_way_out([Case("", made)], 40 * MIB) if o.fit.allocator == "ideal")
    assert ideal.fits
    assert "no allocator can serve that" not in " ".join(causes(explanation))
    assert any("rests of live blocks" in text for text in causes(explanation))


def test_a_request_that_takes_a_whole_segment_fails_for_that() -> None:
    """Requests below 10 MiB take segments of 20 MiB; 10 MiB in one piece are not reserved here."""
    text = " ".join(causes(explained(history((ALLOC, 0, 20 * MIB), (ALLOC, 1, 2 * MIB)), 30 * MIB)))
    assert "a segment of 20.0 MiB" in text


def test_the_largest_hole_in_reach_is_named_to_a_request_of_a_private_pool() -> None:
    made = history(
        (BEGIN, 1, 0, -1), (ALLOC, 0, 60 * MIB), (FREE, 0, 60 * MIB), (ALLOC, 1, 70 * MIB)
    )
    explanation = explained(made, 80 * MIB)
    assert explanation.request.pool == (0, 1)
    assert "the largest hole in its reach is 60.0 MiB" in causes(explanation)[0]


def test_other_streams_are_named_where_they_hold_what_is_missing() -> None:
    made = history(
        (ALLOC, 0, 60 * MIB, 7),
        (ALLOC, 1, 2 * MIB, 7),
        (ALLOC, 2, 2 * MIB, 7),
        (FREE, 1, 2 * MIB, 7),
        (FREE, 0, 60 * MIB, 7),
        (ALLOC, 3, 64 * MIB, 7),
        (ALLOC, 4, 12 * MIB, 0),
    )
    explanation = explained(made, 94 * MIB)
    assert explanation.row == 6
    # 20 MiB for the two of 2 MiB, of which one is live.
    assert explanation.reserved.streams == 18 * MIB
    assert causes(explanation)[1].startswith("18.0 MiB were freed on other streams")
