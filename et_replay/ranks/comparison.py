"""The digests of one group's ranks in, the first call in which they differ out.

All are compared with the first that comes. Where more ranks differ from it at a call than agree, it
is the odd one out, and the sentence is about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from et_replay.ranks.digest import Fault, GroupDigest, Key
from et_replay.ranks.groups import group_text
from et_replay.ranks.kinds import SEND, TO_ALL
from et_replay.ranks.signature import Signature
from et_replay.units import counted


class Misfit(NamedTuple):
    """What does not fit, in a sentence, and where: a call that is lacking has no node there.

    `order` is the node by which one of several misfits is the first.
    """

    rank: int
    node_id: int | None
    key: Key
    text: str
    order: int


class CallsOfKind(NamedTuple):
    """The calls of one kind in a group; `matched` is None where not all of them were compared."""

    number: int = 0
    bytes: int = 0
    matched: bool | None = True


class _Call(NamedTuple):
    """What a rank calls at some place of its group's order; no signature where nothing is left."""

    rank: int
    signature: Signature | None
    node_id: int | None


class GroupComparison:
    """Compares the ranks of a group as they come; `close` it once there are no more.

    `misfit` and `unbalanced`, the first call of all_to_all whose parts do not add up, are known
    from then on. `kinds` counts the calls of the first rank and their bytes, and all sends; a kind
    of which only other ranks have a call, one that does not fit, is there without a count.
    """

    def __init__(self, rank: int, first: GroupDigest) -> None:
        self.key = first.key
        self.description = first.description
        self.kinds = _counts(first)
        self.misfit: Misfit | None = None
        self.unbalanced: int | None = None
        self._rank = rank
        self._first = first
        self._places: dict[Signature, int] = {}
        self._reductions: dict[str | None, int] = {None: -1}
        self._alike = self._classes(first.signatures)
        self._weights = first.weights.copy()
        self._seen = {rank}
        self._fault = (rank, first.fault) if first.fault else None
        self._index: int | None = None
        self._other = _Call(rank, None, None)
        self._differing = 0

    @property
    def is_complete(self) -> bool:
        """True once all ranks of the group have come."""
        return len(self._seen) == len(self.key[0])

    def add(self, rank: int, other: GroupDigest) -> None:
        """Compare one more rank with the first."""
        self._seen.add(rank)
        self._differ(rank, other.signatures, other.codes, other.node_ids)
        count = min(len(self._weights), len(other.weights))
        self._weights[:count] += other.weights[:count]
        if other.fault and (self._fault is None or other.fault.call < self._fault[1].call):
            self._fault = (rank, other.fault)
        _add_sends(self.kinds, other)

    def lack(self, ranks: Collection[int]) -> None:
        """Compare those of `ranks` that should have come: they make no calls in this group."""
        nothing = np.empty(0, np.int64)
        for rank in self.key[0]:
            if rank in ranks and rank not in self._seen:
                self._seen.add(rank)
                self._differ(rank, (), nothing.astype(np.int32), nothing)

    def close(self) -> None:
        """Work out what does not fit, and forget the calls."""
        index = len(self._first.codes) if self._index is None else self._index
        if self._fault is not None and self._fault[1].call <= index:
            index = self._fault[1].call
            self.misfit = self._faulty(*self._fault)
        elif self._index is not None:
            self.misfit = self._different(self._index)
        if self.is_complete and self._weights.any():
            kinds = [self._first.signatures[code].kind for code in self._first.codes.tolist()]
            calls = [call for call, kind in enumerate(kinds) if kind in TO_ALL]
            found = calls[int(np.flatnonzero(self._weights)[0])]
            self.unbalanced = found if found < index else None
        self._judge(index if self.unbalanced is None else self.unbalanced)
        self._first = replace(
            self._first, codes=self._first.codes[:0], node_ids=self._first.node_ids[:0]
        )

    def refuse(self, kind: str) -> None:
        """Let it be known that the calls of a kind do not fit."""
        self.kinds[kind] = self.kinds.get(kind, CallsOfKind())._replace(matched=False)

    def _classes(self, signatures: Sequence[Signature]) -> npt.NDArray[np.int32]:
        """Number what signatures have alike without their reductions, and these: -1 if untold."""
        pairs = [
            (
                self._places.setdefault(signature.without_reduction, len(self._places)),
                self._reductions.setdefault(signature.reduction, len(self._reductions)),
            )
            for signature in signatures
        ]
        return np.array(pairs, np.int32).reshape(-1, 2)

    def _judge(self, end: int) -> None:
        """Say which kinds fit; call `end` is the first that does not, or is behind the last one."""
        kinds = [signature.kind for signature in self._first.signatures]
        compared = Counter(kinds[code] for code in self._first.codes[:end].tolist())
        for kind, calls in self.kinds.items():
            uncompared = kind != SEND and calls.number > compared[kind]
            if uncompared or not self.is_complete:
                self.kinds[kind] = calls._replace(matched=None)
        for code in self._first.codes[end : end + 1].tolist():
            self.refuse(kinds[code])
        if self._index == end and self._other.signature is not None:
            self.refuse(self._other.signature.kind)
        if self._fault is not None and self._fault[1].call == end:
            self.refuse(self._fault[1].signature.kind)

    def _differ(
        self,
        rank: int,
        signatures: Sequence[Signature],
        codes: npt.NDArray[np.int32],
        node_ids: npt.NDArray[np.int64],
    ) -> None:
        """Find the first call that differs, and keep the earliest of all ranks."""
        own, count = self._first.codes, min(len(codes), len(self._first.codes))
        calls, reductions = self._alike[own[:count]].T
        others, their = self._classes(signatures)[codes[:count]].T
        untold = (reductions < 0) | (their < 0)
        same = (calls == others) & (untold | (reductions == their))
        index = count if same.all() else int(np.argmin(same))
        if index == len(own) == len(codes) or (self._index is not None and index > self._index):
            return
        if index != self._index:
            self._index, self._differing = index, 0
            left = index < len(codes)
            self._other = _Call(
                rank,
                signatures[codes[index]] if left else None,
                int(node_ids[index]) if left else None,
            )
        self._differing += 1

    def _faulty(self, rank: int, fault: Fault) -> Misfit:
        text = (
            f"Rank {rank} calls {fault.signature} at node {fault.node_id} in group"
            f" {group_text(*self.key)}, but {fault.text}."
        )
        return Misfit(rank, fault.node_id, self.key, text, fault.node_id)

    def _different(self, index: int) -> Misfit:
        left = index < len(self._first.codes)
        first = _Call(
            self._rank,
            self._first.signatures[self._first.codes[index]] if left else None,
            int(self._first.node_ids[index]) if left else None,
        )
        odd, usual = self._other, first
        if self._differing > len(self._seen) - self._differing:
            odd, usual = usual, odd
        group = group_text(*self.key)
        if odd.signature is None:
            text = (
                f"Rank {odd.rank} makes {counted(index, 'call')} in group {group} and then lacks"
                f" {usual.signature}, which rank {usual.rank} calls at node {usual.node_id}."
            )
        else:
            text = f"Rank {odd.rank} calls {odd.signature} at node {odd.node_id}"
            text += f" as call {index + 1} of group {group}, "
            if usual.signature is None:
                text += f"in which rank {usual.rank} makes {counted(index, 'call')} in all."
            else:
                text += f"where rank {usual.rank} calls {usual.signature} at node {usual.node_id}."
        order = odd.node_id if odd.node_id is not None else usual.node_id
        return Misfit(odd.rank, odd.node_id, self.key, text, order or 0)


def _counts(first: GroupDigest) -> dict[str, CallsOfKind]:
    """Count the calls of each kind, and their bytes."""
    found: dict[str, CallsOfKind] = {}
    times = np.bincount(first.codes, minlength=len(first.signatures)).tolist()
    for signature, count, moved in zip(first.signatures, times, first.bytes, strict=True):
        before = found.get(signature.kind, CallsOfKind())
        found[signature.kind] = CallsOfKind(before.number + count, before.bytes + moved)
    _add_sends(found, first)
    return found


def _add_sends(kinds: dict[str, CallsOfKind], group: GroupDigest) -> None:
    count = sum(map(len, group.sends.values()))
    if count:
        before = kinds.get(SEND, CallsOfKind())
        kinds[SEND] = CallsOfKind(before.number + count, before.bytes + group.sent_bytes)


def find_parts(
    key: Key, call: int, parts: Iterable[tuple[int, Sequence[int], Sequence[int]]]
) -> Misfit:
    """Find the pair of ranks whose parts of an all_to_all differ.

    `parts` has, for each rank of the group in order, the node of the call, what the rank sends to
    each one, and what it expects of each.
    """
    node_ids, given, taken = zip(*parts, strict=True)
    sender, receiver = next(
        (sender, receiver)
        for sender, sizes in enumerate(given)
        for receiver, size in enumerate(sizes)
        if size != taken[receiver][sender]
    )
    ranks = key[0]
    text = (
        f"Rank {ranks[sender]} sends {given[sender][receiver]} elements to rank {ranks[receiver]}"
        f" in the all_to_all at node {node_ids[sender]}, call {call + 1} of group"
        f" {group_text(*key)}, but rank {ranks[receiver]} expects {taken[receiver][sender]} of it"
        f" at node {node_ids[receiver]}."
    )
    return Misfit(ranks[sender], node_ids[sender], key, text, node_ids[sender])
