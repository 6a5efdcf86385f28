"""Groups of calls for which no trace tells them: what all ranks together tell, and what is left.

In a case, each rank lists its groups, the first of all ranks, and then its calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Group, Groups
from et_replay.ranks.inference import Inferred, RankCalls, infer, placed

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A call, an all_reduce but for a peer, and the ranks of its group where the trace tells."""

    size: int
    told: Ranks = ()
    kind: str = "all_reduce"
    peer: int | None = None


def rank_of(rank: int, groups: list[Ranks], *calls: int | Call) -> RankCalls:
    """Return a rank whose calls have the nodes 0, 1, …; a number is a call of that size."""
    own = Groups(rank, len(groups[0]), tuple(Group(ranks) for ranks in groups))
    found = []
    for node_id, call in enumerate(calls):
        made = call if isinstance(call, Call) else Call(call)
        told = bool(made.told) or len(groups) == 1
        found.append(
            Collective(
                made.kind,
                node_id,
                node_id,
                group=groups.index(made.told) if made.told else 0,
                group_told=told,
                candidates=() if told else tuple(range(len(groups))),
                dtype="float",
                element_size=4,
                in_elements=made.size,
                out_elements=made.size,
                peer=made.peer,
            )
        )
    return own, found


def groups_of(*ranks: RankCalls) -> list[list[Ranks]]:
    """Return the ranks of the group of each call of each rank."""
    calls = {groups.rank: (groups, calls) for groups, calls in ranks}
    inferred = infer(calls)
    return [
        [groups[call.group].ranks for call in placed(groups, own, inferred[rank])]
        for rank, (groups, own) in calls.items()
    ]


def sure(*ranks: RankCalls) -> list[list[bool]]:
    """Return of which calls the group is sure."""
    calls = {groups.rank: (groups, calls) for groups, calls in ranks}
    inferred = infer(calls)
    return [
        [call.group_told for call in placed(groups, own, inferred[rank])]
        for rank, (groups, own) in calls.items()
    ]


ALL, FIRST, SECOND, EVEN = (0, 1, 2, 3), (0, 1), (2, 3), (0, 2)


def test_what_other_ranks_do_not_call_is_in_the_group_without_them() -> None:
    ranks = (
        rank_of(0, [ALL, EVEN], 64, 32, 16),
        rank_of(1, [ALL], 64, 16),
        rank_of(2, [ALL, EVEN], 64, 32, 16),
        rank_of(3, [ALL], 64, 16),
    )
    assert groups_of(*ranks) == [[ALL, EVEN, ALL], [ALL, ALL], [ALL, EVEN, ALL], [ALL, ALL]]
    assert sure(*ranks) == [[True] * 3, [True] * 2, [True] * 3, [True] * 2]


def test_of_calls_that_are_alike_the_first_is_taken_to_be_of_all_and_none_is_sure() -> None:
    ranks = (
        rank_of(0, [ALL, EVEN], 64, 64),
        rank_of(1, [ALL], 64),
        rank_of(2, [ALL, EVEN], 64, 64),
        rank_of(3, [ALL], 64),
    )
    assert groups_of(*ranks) == [[ALL, EVEN], [ALL], [ALL, EVEN], [ALL]]
    assert sure(*ranks) == [[False, False], [True], [False, False], [True]]


def test_a_group_of_one_rank_has_what_no_other_calls() -> None:
    ranks = (rank_of(0, [FIRST, (0,)], 64, 8, 64), rank_of(1, [FIRST], 64, 64))
    assert groups_of(*ranks) == [[FIRST, (0,), FIRST], [FIRST, FIRST]]


def test_stages_whose_sizes_differ_reduce_in_groups_of_their_own() -> None:
    ranks = (
        *(rank_of(rank, [ALL, FIRST], 64, 48) for rank in FIRST),
        *(rank_of(rank, [ALL, SECOND], 80) for rank in SECOND),
    )
    assert groups_of(*ranks) == [[FIRST, FIRST]] * 2 + [[SECOND]] * 2
    assert sure(*ranks) == [[True, True]] * 2 + [[True]] * 2


def test_a_stage_that_is_ahead_waits_for_the_call_of_all() -> None:
    """The first stage has nothing of its own to reduce; its call could be in (0, 1) by its size."""
    ranks = (
        *(rank_of(rank, [ALL, FIRST], 16) for rank in FIRST),
        *(rank_of(rank, [ALL, SECOND], 80, 16) for rank in SECOND),
    )
    assert groups_of(*ranks) == [[ALL]] * 2 + [[SECOND, ALL]] * 2


def test_calls_that_are_told_to_be_in_other_groups_are_not_in_the_way() -> None:
    ranks = (
        rank_of(0, [ALL, FIRST, EVEN], Call(8, FIRST), Call(64, ALL), 32),
        rank_of(1, [ALL, FIRST], Call(64, ALL), Call(8, FIRST)),
        rank_of(2, [ALL, EVEN], 32, Call(64, ALL)),
        rank_of(3, [ALL], Call(64, ALL)),
    )
    assert groups_of(*ranks)[0] == [FIRST, ALL, EVEN]
    assert groups_of(*ranks)[2] == [EVEN, ALL]


def test_sizes_that_fit_one_group_alone_tell_it() -> None:
    def gather(size: int) -> Call:
        return Call(size, kind="all_gather_into_tensor")

    groups, (call,) = rank_of(0, [ALL, FIRST], gather(4))
    two = Collective(
        call.kind, 0, 0, 0, False, (0, 1), dtype="float", in_elements=4, out_elements=8
    )
    found = infer({0: (groups, [two]), 1: (rank_of(1, [ALL, FIRST])[0], [two])})
    assert found == {
        0: {0: Inferred((FIRST, 0), told=True)},
        1: {0: Inferred((FIRST, 0), told=True)},
    }


def test_what_follows_on_a_call_that_fits_nowhere_is_left_as_it_was() -> None:
    """Ranks 0 and 2 could go on without the others, which the wrong call of rank 1 holds up."""
    ranks = (
        rank_of(0, [ALL, EVEN], 8, Call(32, kind="broadcast"), 64, 16),
        rank_of(1, [ALL], 8, 65, 16),
        rank_of(2, [ALL, EVEN], 8, Call(32, kind="broadcast"), 64, 16),
        rank_of(3, [ALL], 8, 64, 16),
    )
    assert groups_of(*ranks)[0] == [ALL, EVEN, ALL, ALL]
    assert sure(*ranks)[0] == [True, True, False, False]


def test_a_message_is_in_the_group_in_which_it_is_received() -> None:
    send = Call(8, kind="send", peer=1)  # to rank 3, or to rank 1
    ranks = (
        rank_of(2, [ALL, SECOND], send),
        rank_of(3, [ALL, SECOND], Call(8, kind="recv", peer=0)),
    )
    assert groups_of(*ranks) == [[SECOND], [SECOND]]
    assert sure(*ranks) == [[True], [True]]


def test_calls_without_a_partner_are_left_as_they_were() -> None:
    ranks = (
        rank_of(0, [ALL, FIRST], Call(8, kind="send", peer=1), Call(8, kind="recv")),
        rank_of(1, [ALL, FIRST]),
    )
    assert groups_of(*ranks) == [[ALL, ALL], []]
    assert sure(*ranks) == [[False, False], []]


def test_a_choice_that_leaves_calls_over_is_made_anew() -> None:
    """All could make the first call together, but rank 1 would be left alone with its other."""
    three, first, last = (0, 1, 2), (0, 1), (1, 2)
    ranks = (
        rank_of(0, [three, first], 8),
        rank_of(1, [three, first, last], 8, 8),
        rank_of(2, [three, last], 8),
    )
    assert groups_of(*ranks) == [[first], [first, last], [last]]


def test_parts_of_an_all_to_all_tell_groups_of_one_size_apart() -> None:
    """What rank 0 sends is what rank 2 expects, and not what rank 1 does."""

    def exchange(sent: Ranks, expected: Ranks) -> Collective:
        return Collective(
            "all_to_all_single",
            0,
            0,
            group=1,
            group_told=False,
            candidates=(1, 2),
            dtype="float",
            in_elements=sum(sent),
            out_elements=sum(expected),
            in_splits=sent,
            out_splits=expected,
        )

    odd = (1, 3)
    even_rank = exchange((1, 2), (1, 4)), exchange((4, 5), (2, 5))
    odd_rank = exchange((6, 7), (6, 8)), exchange((8, 9), (7, 9))
    ranks = {
        0: (rank_of(0, [ALL, FIRST, EVEN])[0], [even_rank[0]]),
        1: (rank_of(1, [ALL, FIRST, odd])[0], [odd_rank[0]]),
        2: (rank_of(2, [ALL, SECOND, EVEN])[0], [even_rank[1]]),
        3: (rank_of(3, [ALL, SECOND, odd])[0], [odd_rank[1]]),
    }
    assert groups_of(*ranks.values()) == [[EVEN], [odd], [EVEN], [odd]]
