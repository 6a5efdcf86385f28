"""The collective times of all ranks in; count, time, bandwidth and waiting of each kind out.

Bandwidths are as NCCL's tests define them (doc/PERFORMANCE.md there): the algorithm's is bytes by
time, the bus's that times a factor, so that it can be held against the hardware whatever the number
of ranks. A rank that comes early waits for the last one, which is no transfer: the time of a call
is that of the rank that waited least, or where not all wait for all, the longest without waiting.
Who came when is told by the ranks' own clocks, set by each other where calls end for all at once;
what these ends differ by from call to call tells how exactly, and a shorter wait is not told.
Messages, and calls of which the ranks made different numbers, are timed with the waiting in them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from et_replay.replay.result import CollectiveTimes

_ALL_WAIT = ("all_", "reduce_scatter", "barrier", "monitored_barrier")
_BETWEEN_TWO = frozenset({"send", "recv"})

_Key = tuple[str, tuple[int, ...], str]
"""Kind, group and type."""
_Ordered = Mapping[int, Sequence[tuple[int, int, int, int]]]
"""By rank its calls in order: the number of the iteration, begin, time and bytes of each."""
_Clocks = Mapping[tuple[int, int], "_Clock"]
"""Those of a group, by rank and the number of the iteration."""


@dataclass(frozen=True)
class CollectiveRow:
    """The calls of one kind, group, type and size; times in ns, bandwidths in bytes a second.

    `bytes` is that of the rank with most, as these may differ. `calls` are those of an iteration in
    that of `ranks` with most. `times` has one of each call, or where calls of different ranks
    cannot be told to be one, of each call of each rank. `waits` says how long each rank waited for
    others in an iteration, and `waited_for` for whom; both are empty where `times` include that.
    `share` is what the calls with all waiting take of an iteration, as a mean of ranks; it adds up
    calls that overlap. Bandwidths are None where nothing is transferred.
    """

    kind: str
    group: tuple[int, ...]
    dtype: str
    bytes: int
    ranks: tuple[int, ...]
    calls: int
    times: Sequence[int]
    waits: Mapping[int, int]
    waited_for: Mapping[int, int]
    share: float | None

    @property
    def median(self) -> int:
        return round(statistics.median(self.times))

    @property
    def waiting(self) -> int | None:
        """How long all ranks together waited; None where that cannot be told from `times`."""
        return sum(self.waits.values()) if self.waits or len(self.group) == 1 else None

    @property
    def slowest(self) -> int | None:
        """The rank for which the others waited longest; None where none did."""
        return max(self.waited_for, key=lambda rank: (self.waited_for[rank], -rank), default=None)

    @property
    def algorithm_bandwidth(self) -> float | None:
        median = statistics.median(self.times)
        return self.bytes / median * 1e9 if self.bytes and median else None

    @property
    def bus_bandwidth(self) -> float | None:
        algorithm = self.algorithm_bandwidth
        return None if algorithm is None else algorithm * bus_factor(self.kind, len(self.group))


def bus_factor(kind: str, ranks: int) -> float:
    """Return bus bandwidth / algorithm bandwidth for a kind of collective among `ranks` ranks."""
    if kind.startswith("all_reduce"):
        return 2 * (ranks - 1) / ranks
    if kind.startswith(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")):
        return (ranks - 1) / ranks
    return 1.0


def collective_rows(
    times: Mapping[int, Sequence[CollectiveTimes]], iteration_times: Mapping[int, Sequence[int]]
) -> list[CollectiveRow]:
    """Bring together what the ranks have of the same kind, group, type and size; longest first.

    `iteration_times` are those of the iterations in which `times` were taken.
    """
    found: dict[_Key, dict[int, list[CollectiveTimes]]] = {}
    for rank, entries in sorted(times.items()):
        for entry in (entry for entry in entries if entry.times_ns):
            key = (entry.kind, entry.group, entry.dtype)
            found.setdefault(key, {}).setdefault(rank, []).append(entry)
    called = {
        key: {rank: sorted(_in_order(entries)) for rank, entries in ranks.items()}
        for key, ranks in found.items()
    }
    rows = []
    clocks = _clocks(called, all(each.at_once for of_rank in times.values() for each in of_rank))
    for (kind, group, dtype), ranks in called.items():
        of_sizes: dict[int, list[_Call]] = {}
        for call in _calls(kind, ranks, clocks.get(group, {})):
            of_sizes.setdefault(call.bytes, []).append(call)
        of_ranks = found[kind, group, dtype].values()
        iterations = max(entry.iterations for entries in of_ranks for entry in entries)
        for calls in of_sizes.values():
            rows.append(_row(kind, group, dtype, calls, iterations, iteration_times))
    return sorted(rows, key=lambda row: -row.median * row.calls)


class _Clock(NamedTuple):
    """By how many ns a rank's clock is ahead in an iteration, and may be more or less."""

    ahead: int
    error: int


_RIGHT = _Clock(0, 0)


@dataclass(frozen=True)
class _Call:
    """One collective: when each rank came to it, give or take `error`, and how long it stayed."""

    bytes: int
    begins: Mapping[int, int]
    times: Mapping[int, int]
    error: int = 0

    def last(self, kind: str) -> int:
        """Return the rank that came last: it stayed for the shortest time where all leave at once.

        Ranks' clocks do not agree to the microsecond, so when they came says less.
        """
        if kind.startswith(_ALL_WAIT):
            return min(self.times, key=lambda rank: (self.times[rank], -self.begins[rank]))
        return max(self.begins, key=lambda rank: self.begins[rank])

    def waits(self, kind: str) -> dict[int, int]:
        """Say how long each rank waited for the last one, which cannot be longer than it stayed."""
        last = self.last(kind)
        if kind.startswith(_ALL_WAIT):
            return {rank: time - self.times[last] for rank, time in self.times.items()}
        return {
            rank: min(early, self.times[rank]) if early > self.error else 0
            for rank, early in self._early(kind).items()
        }

    def time(self, kind: str) -> int:
        """Return how long it took but for waiting, also where that is too short to be told."""
        if kind.startswith(_ALL_WAIT):
            return min(self.times.values())
        return max(self.times[rank] - early for rank, early in self._early(kind).items())

    def _early(self, kind: str) -> dict[int, int]:
        """Say by how much each rank came before the last one."""
        last = self.begins[self.last(kind)]
        return {rank: last - begin for rank, begin in self.begins.items()}


def _clocks(called: Mapping[_Key, _Ordered], at_once: bool) -> dict[tuple[int, ...], _Clocks]:
    """Set each rank's clock in each iteration by that of one rank of its group.

    Ranks begin iterations together as far as their hosts do, which is not to the microsecond,
    unless their devices begin them `at_once`.
    """
    gaps: dict[tuple[int, ...], dict[tuple[int, int], list[int]]] = {}
    for (kind, group, _), ranks in called.items():
        if not kind.startswith(_ALL_WAIT) or len(set(map(len, ranks.values()))) > 1:
            continue
        first = next(iter(ranks.values()))
        for rank, calls in ranks.items():
            for (iteration, begin, time, _), (_, other_begin, other_time, _) in zip(
                calls, first, strict=True
            ):
                of_group = gaps.setdefault(group, {}).setdefault((rank, iteration), [])
                of_group.append(begin + time - other_begin - other_time)
    return {
        group: {key: _clock(values, at_once) for key, values in of_group.items()}
        for group, of_group in gaps.items()
    }


def _clock(gaps: Sequence[int], at_once: bool) -> _Clock:
    """Return the clock whose ends of calls are so far from those of another.

    Where it should be right, it is set only if these tell it from the other.
    """
    ahead = round(statistics.median(gaps))
    error = max(abs(gap - ahead) for gap in gaps)
    return _Clock(0 if at_once and abs(ahead) <= error else ahead, error)


def _calls(kind: str, ranks: _Ordered, clocks: _Clocks) -> Iterator[_Call]:
    """Yield the calls of a kind in a group: all ranks come to these in the same order.

    Messages are between two, and where ranks came to different numbers of calls, it cannot be told
    which are one.
    """
    if kind in _BETWEEN_TWO or len(set(map(len, ranks.values()))) > 1:
        for rank, calls in ranks.items():
            yield from (_Call(size, {rank: begin}, {rank: time}) for _, begin, time, size in calls)
        return
    for of_all in zip(*ranks.values(), strict=True):
        of_call = dict(zip(ranks, of_all, strict=True))
        of_rank = {rank: clocks.get((rank, call[0]), _RIGHT) for rank, call in of_call.items()}
        yield _Call(
            max(size for _, _, _, size in of_all),
            {rank: begin - of_rank[rank].ahead for rank, (_, begin, _, _) in of_call.items()},
            {rank: time for rank, (_, _, time, _) in of_call.items()},
            max(clock.error for clock in of_rank.values()),
        )


def _in_order(entries: Sequence[CollectiveTimes]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the number of the iteration, begin, time and bytes of each call."""
    for entry in entries:
        calls = -(-len(entry.times_ns) // entry.iterations)
        for k, (begin, time) in enumerate(zip(entry.begins_ns, entry.times_ns, strict=True)):
            yield k // calls, begin, time, entry.bytes


def _row(
    kind: str,
    group: tuple[int, ...],
    dtype: str,
    calls: Sequence[_Call],
    iterations: int,
    iteration_times: Mapping[int, Sequence[int]],
) -> CollectiveRow:
    """Sum up calls of one size."""
    waits: Counter[int] = Counter()
    waited_for: Counter[int] = Counter()
    stays: Counter[int] = Counter()
    counts = Counter(rank for call in calls for rank in call.times)
    for call in calls:
        stays.update(call.times)
        if len(call.times) > 1:
            waits.update(call.waits(kind))
            waited_for[call.last(kind)] += sum(call.waits(kind).values())
    shares = [
        stay / sum(iteration_times[rank])
        for rank, stay in stays.items()
        if sum(iteration_times.get(rank, ()))
    ]
    return CollectiveRow(
        kind=kind,
        group=group,
        dtype=dtype,
        bytes=calls[0].bytes,
        ranks=tuple(sorted(counts)),
        calls=-(-max(counts.values()) // iterations),
        times=[call.time(kind) for call in calls],
        waits={rank: round(wait / iterations) for rank, wait in waits.items()},
        waited_for={rank: round(wait / iterations) for rank, wait in waited_for.items() if wait},
        share=statistics.fmean(shares) if shares else None,
    )
