"""The replays of all ranks in; the summary that rank 0 prints, or its JSON object, out."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from et_replay.explain import Explanation, Option
from et_replay.ranks.groups import group_text
from et_replay.replay.result import MemoryPeaks, Outcome, Reason, ReplayResult
from et_replay.report.collective_times import CollectiveRow, collective_rows
from et_replay.report.document import JsonObject
from et_replay.report.operation_times import operation_times_text
from et_replay.report.replay import replay_object, replay_text, settings_text
from et_replay.report.table import fields, section, table
from et_replay.units import format_bytes, format_duration, format_rate, format_share

Results = Mapping[int, ReplayResult]
Reasons = Mapping[int, tuple[Explanation | None, Sequence[Option]]]
"""Why memory ran out, and what would fit, of the ranks in which it did."""

_RANKS_SHOWN = 16
"""Ranks with a row of their own unless all are wanted: the slowest ones."""
_ROWS_SHOWN = 20
_RANKS = ("rank", "time", "waiting", "allocated", "reserved", "executed", "substituted", "skipped")
_COLLECTIVES = (
    "collective",
    "group",
    "type",
    "bytes",
    "calls",
    "time",
    "shortest",
    "longest",
    "algorithm",
    "bus",
    "share",
    "waiting",
    "for rank",
)


def ranks_text(
    trace: str,
    results: Results,
    verbose: bool = False,
    size: int | None = None,
    reasons: Reasons | None = None,
) -> str:
    """Summarise what the ranks of the job in `trace` replayed; with `verbose` nothing is cut.

    The times of operations, where they were taken, are those of the slowest rank.

    `size` counts all of them, where some have no result. Of those that ran out of memory the first
    with known `reasons` is reported on by itself.
    """
    rows = _rows(results)
    parts = [fields(_summary(trace, results, size or len(results)))]
    title = "Ranks" if verbose or len(results) <= _RANKS_SHOWN else "The slowest ranks"
    shown = _slowest_first(results)[: None if verbose else _RANKS_SHOWN]
    waits = _waits(rows)
    ranks = [_rank_row(rank, results[rank], waits.get(rank)) for rank in shown]
    parts.append(section(title, table(_RANKS, ranks, right=_RANKS)))
    if rows:
        parts.append(section(*_collectives(rows, verbose)))
    slowest = shown[0]
    if times := results[slowest].operation_times:
        on_cuda = not results[slowest].simulated
        parts.append(operation_times_text(times, on_cuda, verbose, slowest))
    if unexecuted := _unexecuted(results, verbose):
        parts.append(section("Operations not executed as recorded", unexecuted))
    known = reasons or {}
    if failed := [rank for rank in sorted(results) if results[rank].out_of_memory]:
        rank = min(failed, key=lambda rank: rank not in known)
        about = replay_text(results[rank], *known.get(rank, (None, ())), verbose)
        parts.append(f"\nRank {rank}\n{about}")
    return "\n".join(parts)


def ranks_object(
    trace: str, results: Results, size: int | None = None, reasons: Reasons | None = None
) -> JsonObject:
    """Give the same its JSON form."""
    rows = _rows(results)
    waits = _waits(rows)
    slowest = _slowest_first(results)
    return {
        "trace": trace,
        "world_size": size or len(results),
        "slowest_rank": slowest[0] if slowest else None,
        "collectives": [_collective_object(row) for row in rows],
        "ranks": [
            {
                "rank": rank,
                "waiting_ns": waits.get(rank),
                **replay_object(result, *(reasons or {}).get(rank, ())),
            }
            for rank, result in sorted(results.items())
        ],
    }


def _rows(results: Results) -> list[CollectiveRow]:
    return collective_rows(
        {rank: result.collective_times for rank, result in results.items()},
        {rank: result.timed_iterations for rank, result in results.items()},
    )


def _summary(trace: str, results: Results, size: int) -> Iterator[tuple[str, str]]:
    first = results[min(results)]
    yield "Trace", f"{trace}, window {_one_of(result.window for result in results.values())}"
    count = (
        str(size) if size == len(results) else f"{len(results)} of {size}, the others were ended"
    )
    yield "Ranks", f"{count}, on {_one_of(result.device for result in results.values())}"
    yield "Replay mode", first.replay_mode
    yield "Mode", first.mode
    if any(result.torch_settings for result in results.values()):
        yield "As in the job", _settings_of_all(results)
    kind = "simulated" if first.simulated else "measured"
    times = {rank: median for rank, result in results.items() if (median := _time(result))}
    if times:
        slow, fast = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
        text = f"{format_duration(times[slow])} per iteration in rank {slow}"
        if len(times) > 1:
            text += f", the slowest; {format_duration(times[fast])} in rank {fast}"
        yield "Time", text
    most = max(sorted(results), key=lambda rank: _need(results[rank].memory))
    memory = results[most].memory
    yield (
        "Peak memory",
        f"{kind}; most in rank {most}: {format_bytes(memory.allocated)} allocated, "
        f"{format_bytes(memory.reserved)} reserved",
    )
    for rank, result in sorted(results.items()):
        if result.out_of_memory is not None:
            reason = str(result.out_of_memory).removeprefix("Out of memory: ")
            yield "Out of memory", f"rank {rank}: {reason}"


def _settings_of_all(results: Results) -> str:
    """Write the settings that are the same in all ranks, or those of each."""
    texts = {rank: settings_text(result.torch_settings) for rank, result in results.items()}
    if len(set(texts.values())) == 1:
        return texts[min(texts)]
    return "; ".join(f"rank {rank}: {text or 'none'}" for rank, text in sorted(texts.items()))


def _need(memory: MemoryPeaks) -> tuple[int, int]:
    """Say how bad it is; where as many segments are reserved, by what lives in them."""
    return memory.reserved, memory.allocated


def _one_of(values: Iterable[str]) -> str:
    """Write what all have in common, or each of the different ones."""
    return ", ".join(dict.fromkeys(values))


def _rank_row(rank: int, result: ReplayResult, waiting: int | None) -> tuple[str, ...]:
    memory, coverage = result.memory, result.coverage
    time = _time(result)
    return (
        str(rank),
        format_duration(time) if time else "-",
        "-" if waiting is None else format_duration(waiting),
        format_bytes(memory.allocated),
        format_bytes(memory.reserved),
        str(coverage.executed),
        str(coverage.substituted),
        str(coverage.skipped),
    )


def _time(result: ReplayResult) -> float:
    return statistics.median(result.iteration_times) if result.iteration_times else 0.0


def _slowest_first(results: Results) -> list[int]:
    return sorted(results, key=lambda rank: (-_time(results[rank]), rank))


def _waits(rows: Sequence[CollectiveRow]) -> Counter[int]:
    """Add up how long each rank waits for others in an iteration, as far as calls tell it."""
    waits: Counter[int] = Counter()
    for row in rows:
        if row.waiting is not None:
            waits.update({rank: row.waits.get(rank, 0) for rank in row.ranks})
    return waits


def _collectives(rows: Sequence[CollectiveRow], verbose: bool) -> tuple[str, str]:
    shown = rows if verbose else rows[:_ROWS_SHOWN]
    title = "Collectives, per call"
    if len(shown) < len(rows):
        title += f" ({len(shown)} of {len(rows)} sizes, the longest)"
    lines = [_collective_row(row) for row in shown]
    text = (
        f"{table(_COLLECTIVES, lines, right=_COLLECTIVES[3:])}\n"
        "  Calls and waiting are those of one iteration, waiting that of all ranks; the time of a"
        " call is\n  without it. Bandwidths are as NCCL's tests define them."
    )
    if any(row.waiting is None for row in shown):
        text += (
            "\n  Where waiting is -, as of messages, it cannot be told apart: the time includes it."
        )
    return title, text


def _collective_row(row: CollectiveRow) -> tuple[str, ...]:
    rates = (row.algorithm_bandwidth, row.bus_bandwidth)
    return (
        row.kind,
        group_text(row.group),
        row.dtype,
        format_bytes(row.bytes),
        str(row.calls),
        format_duration(row.median),
        format_duration(min(row.times)),
        format_duration(max(row.times)),
        *("-" if rate is None else format_rate(rate) for rate in rates),
        "-" if row.share is None else format_share(row.share),
        "-" if row.waiting is None else format_duration(row.waiting),
        "-" if row.slowest is None else str(row.slowest),
    )


def _collective_object(row: CollectiveRow) -> JsonObject:
    return {
        "kind": row.kind,
        "group": list(row.group),
        "dtype": row.dtype,
        "bytes": row.bytes,
        "ranks": list(row.ranks),
        "calls": row.calls,
        "median_time_ns": row.median,
        "shortest_time_ns": min(row.times),
        "longest_time_ns": max(row.times),
        "algorithm_bandwidth_bytes_per_s": row.algorithm_bandwidth,
        "bus_bandwidth_bytes_per_s": row.bus_bandwidth,
        "share_of_iteration": row.share,
        "waiting_ns": row.waiting,
        "waiting_by_rank": [{"rank": rank, "waiting_ns": w} for rank, w in row.waits.items()],
        "slowest_rank": row.slowest,
    }


def _unexecuted(results: Results, verbose: bool) -> str:
    """List what some rank did not execute as recorded, with how many ranks and operations.

    Only with `verbose` that is also what the configuration leaves out.
    """
    counts: Counter[tuple[str, Outcome, str]] = Counter()
    ranks: dict[tuple[str, Outcome, str], set[int]] = {}
    for rank, result in results.items():
        for reason in result.coverage.reasons:
            if verbose or not reason.configured:
                key = _key(reason)
                counts[key] += reason.count
                ranks.setdefault(key, set()).add(rank)
    if not counts:
        return ""
    rows = [
        (name, str(count), str(len(ranks[name, outcome, reason])), outcome.value, reason)
        for (name, outcome, reason), count in counts.most_common()
    ]
    return table(("operator", "count", "ranks", "outcome", "reason"), rows, ("count", "ranks"))


def _key(reason: Reason) -> tuple[str, Outcome, str]:
    return reason.name, reason.outcome, reason.reason
