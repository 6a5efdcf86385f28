"""The calls of all ranks in, the groups of those for which no trace tells the group out.

gloo records no group. What one rank calls, all others of the group call as well, so that the ranks
together tell more than each alone:

    rank 0 of (0..3) and (0, 2)    all_reduce of 64, all_reduce of 32    in which groups?
    rank 1 of (0..3)               all_reduce of 64                      so only the first of all

Where several groups fit all the same, the largest is taken, and the call is not sure of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from et_replay.program.communication import WAIT
from et_replay.ranks.collective import Collective
from et_replay.ranks.digest import Key
from et_replay.ranks.groups import Groups
from et_replay.ranks.kinds import RECEIVE, SEND, TO_ALL
from et_replay.ranks.queues import QueuedCall, Queues
from et_replay.ranks.signature import dtype_of, fault_of, signature

RankCalls = tuple[Groups, Sequence[Collective]]


class Inferred(NamedTuple):
    """The group of a call; `told` where none but it could be."""

    key: Key
    told: bool


class _Way(NamedTuple):
    """What a send and its receive have alike, in one of the groups that they may be in."""

    key: Key
    sender: int
    receiver: int
    elements: int
    dtype: str
    tag: int


def infer(ranks: Mapping[int, RankCalls]) -> dict[int, dict[int, Inferred]]:
    """Return, for each rank, the groups of its guessed calls by the ids of their nodes.

    Calls for which no group fits all its ranks are left out: something is wrong with them.
    """
    found: dict[int, dict[int, Inferred]] = {rank: {} for rank in ranks}
    queues = Queues({rank: _queue(*calls) for rank, calls in ranks.items()})
    for call in queues.place():
        found[call.rank][call.node_id] = Inferred(call.key, call.certain)
    _add_messages(found, ranks)
    return {
        rank: {
            call.node_id: found[rank][call.node_id]
            for call in calls
            if not call.group_told and call.node_id in found[rank]
        }
        for rank, (_, calls) in ranks.items()
    }


def placed(
    groups: Groups, calls: Sequence[Collective], inferred: Mapping[int, Inferred]
) -> list[Collective]:
    """Return a rank's calls with the groups that were inferred for the guessed ones."""
    indices = {group.key: index for index, group in enumerate(groups)}
    found = []
    for call in calls:
        known = None if call.group_told else inferred.get(call.node_id)
        if known is not None:
            call = replace(call, group=indices[known.key], group_told=known.told)
        found.append(call)
    return found


def _queue(groups: Groups, calls: Sequence[Collective]) -> list[QueuedCall]:
    return [
        QueuedCall(
            call.node_id,
            signature(call).without_reduction,
            _keys(groups, call),
            call if call.kind in TO_ALL else None,
        )
        for call in calls
        if call.group >= 0 and call.kind not in (SEND, RECEIVE, WAIT)
    ]


def _keys(groups: Groups, call: Collective) -> tuple[Key, ...]:
    """List the groups that a call may be in, by its sizes too if they fit any."""
    if call.group_told:
        return (groups[call.group].key,)
    possible = [groups[index] for index in call.candidates]
    fitting = [
        group
        for group in possible
        if not fault_of(call, len(group.ranks), group.ranks.index(groups.rank))
    ]
    return tuple(group.key for group in fitting or possible)


def _add_messages(found: Mapping[int, dict[int, Inferred]], ranks: Mapping[int, RankCalls]) -> None:
    """Pair each send with a receive that it may be for, those whose group is told first."""
    receives: dict[_Way, deque[int]] = defaultdict(deque)
    for groups, calls in ranks.values():
        for call in calls:
            for way in _ways(groups, call, RECEIVE):
                receives[way].append(call.node_id)
    sends = [
        (rank, groups, call)
        for rank, (groups, calls) in ranks.items()
        for call in calls
        if call.kind == SEND
    ]
    for rank, groups, call in sorted(sends, key=lambda send: not send[2].group_told):
        ways = [way for way in _ways(groups, call, SEND) if _drop(receives[way], found, way)]
        if ways:
            told = len({way.key for way in ways}) == 1
            inferred = Inferred(ways[0].key, told)
            found[rank][call.node_id] = inferred
            found[ways[0].receiver][receives[ways[0]].popleft()] = inferred


def _drop(receives: deque[int], found: Mapping[int, dict[int, Inferred]], way: _Way) -> bool:
    """Leave out receives that were paired in another group; tell whether any is left."""
    while receives and receives[0] in found[way.receiver]:
        receives.popleft()
    return bool(receives)


def _ways(groups: Groups, call: Collective, kind: str) -> list[_Way]:
    """List the ways that a message may go, if it is of this kind and its peer is known."""
    if call.kind != kind or call.peer is None or call.group < 0:
        return []
    ways = []
    for index in (call.group,) if call.group_told else call.candidates:
        key = groups[index].key
        if not 0 <= call.peer < len(key[0]):
            continue
        ends = (groups.rank, key[0][call.peer])
        sender, receiver = ends if kind == SEND else ends[::-1]
        elements = max(call.in_elements, call.out_elements)
        ways.append(_Way(key, sender, receiver, elements, dtype_of(call), call.tag))
    return ways
