"""Sends and receives of all ranks in, those that do not fit together out.

The k-th send of a rank to another one in a group goes to the k-th recv there; where there are tags,
among those of the same tag. A rank's list is kept only until that of its peer has come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from et_replay.ranks.digest import GroupDigest, Key, Transfer


class Unpaired(NamedTuple):
    """A send or recv that does not fit, what is wrong with it, and where it is."""

    rank: int
    node_id: int
    key: Key
    text: str


class _Pair(NamedTuple):
    key: Key
    sender: int
    receiver: int


class Transfers:
    """Pairs sends with receives as the ranks come; `finish` once all have."""

    def __init__(self) -> None:
        self._unpaired: list[Unpaired] = []
        self._sent: dict[_Pair, list[Transfer]] = {}
        self._expected: dict[_Pair, list[Transfer]] = {}
        self._of_any: dict[tuple[Key, int], list[Transfer]] = {}

    def add(self, rank: int, group: GroupDigest) -> None:
        """Add what one rank sends and receives in one group."""
        pairs = []
        for peer, receives in group.receives.items():
            if peer is None:
                self._of_any[group.key, rank] = list(receives)
            else:
                pairs.append(_Pair(group.key, peer, rank))
                self._expected[pairs[-1]] = receives
        for peer, sends in group.sends.items():
            if peer is not None:
                pairs.append(_Pair(group.key, rank, peer))
                self._sent[pairs[-1]] = sends
        for pair in pairs:
            if pair in self._sent and pair in self._expected:
                self._compare(pair, self._sent.pop(pair), self._expected.pop(pair))

    def finish(self, ranks: Collection[int]) -> list[Unpaired]:
        """Compare what is left between `ranks`, all that there are, and list what does not fit."""
        for pair in [*self._sent, *(pair for pair in self._expected if pair not in self._sent)]:
            if pair.sender in ranks and pair.receiver in ranks:
                self._compare(pair, self._sent.get(pair, []), self._expected.get(pair, []))
        for (key, rank), receives in self._of_any.items():
            for receive in receives[:1] if all(each in ranks for each in key[0]) else []:
                text = f"receives {_text(receive)} from any rank, but none sends it"
                self._unpaired.append(Unpaired(rank, receive.node_id, key, text))
        return self._unpaired

    def _compare(self, pair: _Pair, sent: list[Transfer], expected: list[Transfer]) -> None:
        """Compare the two lists of a pair of ranks, and keep the first that does not fit."""
        found: list[Unpaired] = []
        for tag in {transfer.tag for transfer in (*sent, *expected)}:
            sends = [send for send in sent if send.tag == tag]
            receives = [receive for receive in expected if receive.tag == tag]
            found += self._of_tag(pair, sends, receives)
        self._unpaired += sorted(found, key=lambda each: each.node_id)[:1]

    def _of_tag(
        self, pair: _Pair, sends: list[Transfer], receives: list[Transfer]
    ) -> Iterator[Unpaired]:
        for send, receive in zip(sends, receives, strict=False):
            if send[1:] != receive[1:]:
                text = (
                    f"sends {_text(send)} to rank {pair.receiver}, which receives"
                    f" {_text(receive)} there at node {receive.node_id}"
                )
                yield Unpaired(pair.sender, send.node_id, pair.key, text)
                return
        for send in sends[len(receives) :]:
            if not self._taken_by_any(pair, send):
                text = f"sends {_text(send)} to rank {pair.receiver}, which does not receive it"
                yield Unpaired(pair.sender, send.node_id, pair.key, text)
                return
        for receive in receives[len(sends) :][:1]:
            text = f"receives {_text(receive)} from rank {pair.sender}, which does not send it"
            yield Unpaired(pair.receiver, receive.node_id, pair.key, text)

    def _taken_by_any(self, pair: _Pair, send: Transfer) -> bool:
        """Let a recv from any source that fits have a send, if there is one."""
        receives = self._of_any.get((pair.key, pair.receiver), [])
        for k, receive in enumerate(receives):
            if send[1:] == receive[1:]:
                del receives[k]
                return True
        return False


def _text(transfer: Transfer) -> str:
    tag = f" with tag {transfer.tag}" if transfer.tag else ""
    return f"{transfer.elements} {transfer.dtype}{tag}"
