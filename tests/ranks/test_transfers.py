"""Sends and receives: paired in order, by tag where there are tags, and by size for any source."""

from __future__ import annotations

import numpy as np

from et_replay.ranks.digest import GroupDigest, Transfer
from et_replay.ranks.transfers import Transfers

Calls = dict["int | None", list[Transfer]]


def transfer(node_id: int, elements: int, tag: int = 0) -> Transfer:
    return Transfer(node_id, elements, "float", tag)


def unpaired(*ranks: tuple[Calls, Calls], there: int = 3) -> list[tuple[int, int, str]]:
    """Return (rank, node, what is wrong) for what ranks 0, 1, … send and receive by peer.

    Of the group's three ranks the first `there` have files.
    """
    transfers = Transfers()
    for rank, (sends, receives) in enumerate(ranks):
        transfers.add(
            rank,
            GroupDigest(
                key=((0, 1, 2), 0),
                description="",
                signatures=(),
                bytes=(),
                codes=np.empty(0, np.int32),
                node_ids=np.empty(0, np.int64),
                weights=np.empty(0, np.uint64),
                sends=sends,
                receives=receives,
            ),
        )
    return [(each.rank, each.node_id, each.text) for each in transfers.finish(range(there))]


def test_what_is_sent_in_order_is_received_in_order() -> None:
    first: tuple[Calls, Calls] = ({1: [transfer(10, 4), transfer(11, 8)]}, {})
    second: tuple[Calls, Calls] = ({}, {0: [transfer(20, 4), transfer(21, 8)]})
    assert unpaired(first, second) == []
    assert unpaired(({}, {1: [transfer(20, 4)]}), ({0: [transfer(10, 4)]}, {})) == []


def test_what_goes_to_or_comes_from_a_rank_without_a_file_is_not_known_to_be_in_vain() -> None:
    sends: tuple[Calls, Calls] = ({2: [transfer(10, 4)]}, {2: [transfer(11, 4)]})
    receives: tuple[Calls, Calls] = ({}, {None: [transfer(20, 4)]})
    assert unpaired(sends, receives, there=2) == []
    assert unpaired(({1: [transfer(10, 4)]}, {}), ({}, {}), there=2) == [
        (0, 10, "sends 4 float to rank 1, which does not receive it")
    ]


def test_another_order_does_not_fit() -> None:
    found = unpaired(
        ({1: [transfer(10, 4), transfer(11, 8)]}, {}),
        ({}, {0: [transfer(20, 8), transfer(21, 4)]}),
    )
    assert found == [(0, 10, "sends 4 float to rank 1, which receives 8 float there at node 20")]


def test_with_tags_another_order_fits() -> None:
    assert (
        unpaired(
            ({1: [transfer(10, 4, 1), transfer(11, 8, 2)]}, {}),
            ({}, {0: [transfer(20, 8, 2), transfer(21, 4, 1)]}),
        )
        == []
    )


def test_a_send_that_nobody_receives_is_found() -> None:
    found = unpaired(({1: [transfer(10, 4), transfer(11, 4)]}, {}), ({}, {0: [transfer(20, 4)]}))
    assert found == [(0, 11, "sends 4 float to rank 1, which does not receive it")]


def test_a_receive_that_nobody_sends_is_found() -> None:
    found = unpaired(({}, {}), ({}, {0: [transfer(20, 4, 7)]}))
    assert found == [(1, 20, "receives 4 float with tag 7 from rank 0, which does not send it")]


def test_a_receive_from_any_source_takes_what_is_left_of_its_size() -> None:
    receiver: tuple[Calls, Calls] = (
        {},
        {None: [transfer(30, 8), transfer(31, 4)], 1: [transfer(32, 4)]},
    )
    senders: list[tuple[Calls, Calls]] = [
        ({0: [transfer(10, 4), transfer(11, 4)]}, {}),
        ({0: [transfer(20, 8)]}, {}),
    ]
    assert unpaired(receiver, *senders) == []


def test_a_receive_from_any_source_without_a_send_is_found() -> None:
    found = unpaired(({}, {None: [transfer(30, 8)]}), ({0: [transfer(20, 4)]}, {}))
    assert found == [
        (1, 20, "sends 4 float to rank 0, which does not receive it"),
        (0, 30, "receives 8 float from any rank, but none sends it"),
    ]
