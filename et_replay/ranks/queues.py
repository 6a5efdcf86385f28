"""The calls of all ranks, each with the groups that it may be in, in; one group for each out.

Order counts within a group alone, as a process may call in others from another thread or stream.
Of a group, a rank's head is the first call left that may be in it. A group is ready where the heads
of all its ranks fit together; then they are taken to be one call in it, and so on until none is.
Where calls are left then, the last choice between groups is made in another way, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from et_replay.ranks.collective import Collective
from et_replay.ranks.digest import Key
from et_replay.ranks.signature import Signature, parts_of

_CHOICES = 1000
"""How often a choice is made anew at most."""


class QueuedCall(NamedTuple):
    """A call, and the groups that it may be in; `to_all` where each rank is sent another part."""

    node_id: int
    signature: Signature
    keys: tuple[Key, ...]
    to_all: Collective | None = None


class PlacedCall(NamedTuple):
    """A call and its group; `certain` where no other would do."""

    rank: int
    node_id: int
    key: Key
    certain: bool


@dataclass(slots=True)
class _Step:
    """One call of a group: its places in the ranks' queues, and the ranks that are sure of it.

    `others` are groups that could have been chosen in its place.
    """

    key: Key
    places: list[tuple[int, int]]
    certain: set[int]
    others: list[Key]


class Queues:
    """The calls of each rank that are not in a group yet."""

    def __init__(self, calls: Mapping[int, Sequence[QueuedCall]]) -> None:
        self._calls = calls
        self._steps: list[_Step] = []
        self._taken = {rank: [-1] * len(queue) for rank, queue in calls.items()}
        self._untaken = sum(map(len, calls.values()))
        self._fronts = dict.fromkeys(calls, 0)
        self._heads_at: dict[tuple[int, Key], int] = {}
        self._alike_at: dict[tuple[int, Key, Signature], int] = {}
        self._left: Counter[tuple[int, Key, Signature]] = Counter()
        self._bound: Counter[tuple[int, Key, Signature]] = Counter()
        self._doubted: Counter[Signature] = Counter()
        self._ready: dict[Key, Signature] = {}
        for rank, queue in calls.items():
            for call in queue:
                self._count(rank, call, 1)
        keys = {key for _, key, _ in self._left}
        self._members = {key: [rank for rank in key[0] if rank in calls] for key in keys}

    def place(self) -> Iterator[PlacedCall]:
        """Yield all calls that have a group, once: queues are used up by it."""
        self._look(self._members)
        steps = None
        for _ in range(_CHOICES):
            while self._ready:
                self._take(*sorted(self._ready, key=self._preference))
            if not self._untaken:
                steps = self._steps
                break
            if steps is None:
                steps = self._sound()
            if not self._choose_anew():
                break
        for step in steps or ():
            for rank, index in step.places:
                node_id = self._calls[rank][index].node_id
                yield PlacedCall(rank, node_id, step.key, rank in step.certain)

    def _sound(self) -> list[_Step]:
        """List the steps but those that may have been to make up for a call that is wrong.

        That is the call at which a rank has been stuck the longest. What was not before it, is of
        its kind and others made without it may have been the same call, and so what followed on it.
        """
        last = {
            rank: max(taken[: taken.index(-1)], default=-1)
            for rank, taken in self._taken.items()
            if -1 in taken
        }
        stuck = min(last, key=lambda rank: last[rank])
        kind = self._calls[stuck][self._taken[stuck].index(-1)].signature.kind
        before = self._before(stuck, last[stuck])
        sound: list[_Step] = []
        spoilt: set[int] = set()
        for number, step in enumerate(self._steps):
            ranks = {rank for rank, _ in step.places}
            rank, index = step.places[0]
            is_alike = self._calls[rank][index].signature.kind == kind
            if number not in before and (is_alike or ranks & spoilt):
                spoilt |= ranks
            else:
                sound.append(step)
        return sound

    def _before(self, rank: int, last: int) -> set[int]:
        """Find the steps up to the `last` one of a rank which these calls had to wait for."""
        found, waited = set(), {rank}
        for number in range(last, -1, -1):
            ranks = {rank for rank, _ in self._steps[number].places}
            if ranks & waited:
                waited |= ranks
                found.add(number)
        return found

    def _choose_anew(self) -> bool:
        """Undo steps up to the last choice, and choose the next group; False if none is left."""
        while self._steps:
            step = self._undo()
            if step.others:
                self._take(*step.others)
                return True
        return False

    def _look(self, keys: Iterable[Key]) -> None:
        """Find out which of some groups are ready."""
        for key in keys:
            heads = self._heads(key)
            alike = len({head.signature for head in heads}) == 1
            if alike and len(heads) == len(self._members[key]) and self._parts_fit(key, heads):
                self._ready[key] = heads[0].signature
            else:
                self._ready.pop(key, None)

    def _heads(self, key: Key) -> list[QueuedCall]:
        """Return the heads of a group's ranks, of those that have one."""
        found = ((rank, self._head(rank, key)) for rank in self._members[key])
        return [self._calls[rank][index] for rank, index in found if index is not None]

    def _head(self, rank: int, key: Key) -> int | None:
        queue, taken = self._calls[rank], self._taken[rank]
        index = self._heads_at.get((rank, key), 0)
        while index < len(queue) and (taken[index] >= 0 or key not in queue[index].keys):
            index += 1
        self._heads_at[rank, key] = index
        return index if index < len(queue) else None

    def _next_alike(self, rank: int, key: Key, signature: Signature) -> int:
        """Return the place of the first call left with this signature, of which there is one."""
        queue, taken = self._calls[rank], self._taken[rank]
        index = self._alike_at.get((rank, key, signature), 0)
        while (
            taken[index] >= 0 or queue[index].signature != signature or key not in queue[index].keys
        ):
            index += 1
        self._alike_at[rank, key, signature] = index
        return index

    def _parts_fit(self, key: Key, calls: Sequence[QueuedCall]) -> bool:
        """Tell whether each rank expects of each other one what that sends in an all_to_all."""
        count = len(key[0])
        parts = [parts_of(call.to_all, count) for call in calls if call.to_all is not None]
        if any(len(side) != count for sides in parts for side in sides):
            return False
        places = [place for place, rank in enumerate(key[0]) if rank in self._calls]
        return all(
            given[other] == taken[place]
            for place, (given, _) in zip(places, parts, strict=False)
            for other, (_, taken) in zip(places, parts, strict=False)
        )

    def _preference(self, key: Key) -> tuple[bool, float, int, int, bool, Key]:
        """Order groups: first those that skip no call, and those whose calls can be in no other.

        Others go by how far off another one is that may have the calls, and by size.
        """
        signature, heads = self._ready[key], self._heads(key)
        rivals = {other for head in heads for other in head.keys if len(other[0]) >= len(key[0])}
        rivals.discard(key)
        nearest = min((self._distance(other, signature) for other in rivals), default=inf)
        size = 0 if nearest == inf else len(key[0])
        earliest = min(self._heads_at[rank, key] for rank in self._members[key])
        is_bound = any(len(head.keys) == 1 for head in heads)
        skips = any(self._front(rank) < self._heads_at[rank, key] for rank in self._members[key])
        return skips, -nearest, -size, earliest, not is_bound, key

    def _front(self, rank: int) -> int:
        """Return the place of the first call of a rank that is left."""
        taken, index = self._taken[rank], self._fronts[rank]
        while taken[index] >= 0:
            index += 1
        self._fronts[rank] = index
        return index

    def _distance(self, key: Key, signature: Signature) -> float:
        """Return how many calls some rank of a group has before one with this signature."""
        members = self._members[key]
        if not all(self._left[rank, key, signature] for rank in members):
            return inf
        return max(
            self._next_alike(rank, key, signature) - (self._head(rank, key) or 0)
            for rank in members
        )

    def _take(self, key: Key, *others: Key) -> None:
        """Take the heads of the ranks of a ready group to be one call."""
        members = self._members[key]
        calls = dict(zip(members, self._heads(key), strict=True))
        certain = {rank for rank, call in calls.items() if self._is_certain(rank, call, key)}
        places = [(rank, self._heads_at[rank, key]) for rank in members]
        is_choice = len(certain) < len(members)
        self._doubted[self._ready[key]] += is_choice
        self._steps.append(_Step(key, places, certain, list(others) if is_choice else []))
        for rank, index in places:
            self._taken[rank][index] = len(self._steps) - 1
            self._count(rank, calls[rank], -1)
        self._untaken -= len(places)
        self._look({other for call in calls.values() for other in call.keys})

    def _undo(self) -> _Step:
        """Put the calls of the last step back."""
        step = self._steps.pop()
        rank, index = step.places[0]
        self._doubted[self._calls[rank][index].signature] -= len(step.certain) < len(step.places)
        rivals: set[Key] = set()
        for rank, index in step.places:
            call = self._calls[rank][index]
            self._taken[rank][index] = -1
            self._fronts[rank] = min(self._fronts[rank], index)
            self._count(rank, call, 1)
            rivals.update(call.keys)
            for key in call.keys:
                self._heads_at[rank, key] = min(self._heads_at[rank, key], index)
                place = (rank, key, call.signature)
                self._alike_at[place] = min(self._alike_at.get(place, 0), index)
        self._untaken += len(step.places)
        self._look(rivals)
        return step

    def _count(self, rank: int, call: QueuedCall, change: int) -> None:
        for key in call.keys:
            self._left[rank, key, call.signature] += change
        if len(call.keys) == 1:
            self._bound[rank, call.keys[0], call.signature] += change

    def _is_certain(self, rank: int, call: QueuedCall, key: Key) -> bool:
        """Tell whether no other group has such calls left, or this one needs all of this rank.

        Both hold as far as such calls before it were sure.
        """
        if len(call.keys) > 1 and self._doubted[call.signature]:
            return False
        of_rank = self._left[rank, key, call.signature]
        return any(
            self._bound[member, key, call.signature] == of_rank for member in self._members[key]
        ) or all(
            other == key
            or any(not self._left[member, other, call.signature] for member in self._members[other])
            for other in call.keys
        )
