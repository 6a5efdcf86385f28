"""A rank's calls in, a digest out: small enough to compare the ranks of thousands of files.

The parts of an all_to_all differ from rank to rank: what rank i sends to j is what j expects of i.
No rank's parts are kept for that. Each sent element weighs w(i, j) and each expected one -w(i, j),
with w a random number for each pair of ranks, and over all ranks of the group a call must weigh 0
(modulo 2**64).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from et_replay.program.communication import WAIT
from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Group, Groups
from et_replay.ranks.kinds import RECEIVE, SEND, TO_ALL
from et_replay.ranks.signature import Signature, dtype_of, fault_of, parts_of, signature
from et_replay.ranks.sizes import size_of
from et_replay.units import counted

Key = tuple[tuple[int, ...], int]
"""The ranks of a group, and which of several with these ranks it is."""

_Unsigned = npt.NDArray[np.uint64]


class Transfer(NamedTuple):
    """One send or recv; `tag` is 0 where the backend has none."""

    node_id: int
    elements: int
    dtype: str
    tag: int


class Fault(NamedTuple):
    """A call that no other rank could fit, and which one of its group's it is."""

    call: int
    node_id: int
    signature: Signature
    text: str


@dataclass(frozen=True, slots=True)
class GroupDigest:
    """The calls of one rank in one group, in order.

    `codes` are indices of `signatures`, and `bytes` sums the sizes of the calls of each signature.
    `weights` are of the calls of all_to_all, in order. `sends` and `receives` are by the peer's
    global rank, None for a recv from any source. `guessed` counts calls that may be in another one.
    """

    key: Key
    description: str
    signatures: tuple[Signature, ...]
    bytes: tuple[int, ...]
    codes: npt.NDArray[np.int32]
    node_ids: npt.NDArray[np.int64]
    weights: _Unsigned
    sends: dict[int | None, list[Transfer]]
    receives: dict[int | None, list[Transfer]]
    sent_bytes: int = 0
    fault: Fault | None = None
    guessed: int = 0


@dataclass(frozen=True, slots=True)
class RankDigest:
    """What is compared of one rank; `notes` say in sentences what could not be known."""

    rank: int
    world_size: int | None
    groups: tuple[GroupDigest, ...]
    notes: tuple[str, ...] = ()


def digest(groups: Groups, collectives: Iterable[Collective]) -> RankDigest:
    """Make the digest of a rank's calls; waits are no part of it."""
    calls: dict[int, list[Collective]] = defaultdict(list)
    for call in collectives:
        if call.kind != WAIT:
            calls[call.group].append(call)
    unknown = calls.pop(-1, [])
    digests = tuple(_digest(groups[index], groups.rank, calls[index]) for index in sorted(calls))
    guessed = sum(each.guessed for each in digests)
    notes = (*groups.notes, *_notes(len(unknown), guessed))
    return RankDigest(groups.rank, groups.world_size, digests, notes)


def all_to_all_parts(
    groups: Groups, collectives: Iterable[Collective], key: Key, index: int
) -> tuple[int, Sequence[int], Sequence[int]]:
    """Return the node of the all_to_all that is call `index` of a group, and its parts."""
    group = next(k for k, group in enumerate(groups) if group.key == key)
    calls = [call for call in collectives if call.group == group and _is_ordered(call)]
    return calls[index].node_id, *parts_of(calls[index], len(key[0]))


def _notes(unknown: int, guessed: int) -> Iterator[str]:
    if unknown:
        yield f"Calls whose group is not known are left out of matching: {unknown}."
    if guessed:
        yield (
            "The trace does not tell in which of several groups a call is, as gloo does not;"
            f" one that fits the calls of all ranks was taken for {counted(guessed, 'call')}."
        )


def _is_ordered(call: Collective) -> bool:
    return call.kind not in (SEND, RECEIVE, WAIT)


def _digest(group: Group, rank: int, calls: Sequence[Collective]) -> GroupDigest:
    me, count = group.ranks.index(rank), len(group.ranks)
    ordered = [call for call in calls if _is_ordered(call)]
    places: dict[Signature, int] = {}
    codes = [places.setdefault(signature(call), len(places)) for call in ordered]
    moved = [0] * len(places)
    for code, call in zip(codes, ordered, strict=True):
        moved[code] += size_of(call, count, range(count))
    sent = [call for call in calls if call.kind == SEND]
    return GroupDigest(
        group.key,
        group.description,
        tuple(places),
        tuple(moved),
        np.array(codes, np.int32),
        np.array([call.node_id for call in ordered], np.int64),
        _weights([call for call in ordered if call.kind in TO_ALL], me, count),
        _transfers(group, sent),
        _transfers(group, [call for call in calls if call.kind == RECEIVE]),
        sum(size_of(call, count, range(count)) for call in sent),
        _first_fault(ordered, count, me),
        sum(not call.group_told for call in calls),
    )


def _first_fault(calls: Sequence[Collective], count: int, me: int) -> Fault | None:
    for index, call in enumerate(calls):
        if text := fault_of(call, count, me):
            return Fault(index, call.node_id, signature(call), text)
    return None


def _transfers(group: Group, calls: Sequence[Collective]) -> dict[int | None, list[Transfer]]:
    """Sort sends, or receives, by the global rank of the peer."""
    found: dict[int | None, list[Transfer]] = defaultdict(list)
    for call in calls:
        known = call.peer is not None and 0 <= call.peer < len(group.ranks)
        peer = group.ranks[call.peer] if known and call.peer is not None else None
        has_tags = call.sequence is None  # NCCL numbers its calls, and matches them by order alone
        elements = max(call.in_elements, call.out_elements)
        tag = call.tag if has_tags else 0
        found[peer].append(Transfer(call.node_id, elements, dtype_of(call), tag))
    return dict(found)


def _weights(calls: Sequence[Collective], me: int, count: int) -> _Unsigned:
    """Weigh what each all_to_all sends and expects."""
    if not calls:
        return np.empty(0, np.uint64)
    others = np.arange(count, dtype=np.uint64)
    own = np.full(count, me, np.uint64)
    sent, expected = _pair_weights(own, others), _pair_weights(others, own)
    weights = np.zeros(len(calls), np.uint64)
    for k, call in enumerate(calls):
        given, taken = map(_modulo, parts_of(call, count))
        if len(given) == len(taken) == count:
            weights[k] = (given * sent - taken * expected).sum()
    return weights


def _modulo(sizes: Sequence[int]) -> _Unsigned:
    """Put sizes into 64 bits, which those of a damaged trace may exceed."""
    return np.array([size & 0xFFFFFFFFFFFFFFFF for size in sizes], np.uint64)


def _pair_weights(senders: _Unsigned, receivers: _Unsigned) -> _Unsigned:
    """Give every pair of ranks a random number, the same on all machines: splitmix64."""
    mixed = (senders << np.uint64(32)) + receivers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
