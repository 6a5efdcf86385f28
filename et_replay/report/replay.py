"""A replay's result in; the summary a person reads, or its JSON object, out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from et_replay.errors import OutOfMemoryError
from et_replay.explain import Explanation, Option
from et_replay.program import Mode
from et_replay.replay.result import Coverage, Outcome, Reason, ReplayResult
from et_replay.report.device_memory import other_memory_text
from et_replay.report.document import JsonObject, failure_object
from et_replay.report.explanation import (
    explanation_object,
    explanation_text,
    option_object,
    way_out_text,
)
from et_replay.report.operation_times import operation_times_object, operation_times_text
from et_replay.report.plan import arena_note, served_object, served_text
from et_replay.report.table import fields, section, table
from et_replay.units import format_bytes, format_duration, format_share

_SHOWN = 10
"""Groups of live storages that are named; the others are added up."""

_UNEXPLAINED = (
    "In the state that the device was in, the simulated allocator serves this request or does not"
    " know a setting in force: why it failed cannot be told."
)


def replay_text(
    result: ReplayResult,
    explanation: Explanation | None = None,
    ways_out: Sequence[Option] = (),
    verbose: bool = False,
) -> str:
    """Summarise a replay: what ran where, coverage, time, memory, and what stood in the way."""
    parts = [fields(_summary(result))]
    if result.operation_times:
        on_cuda = not result.simulated
        parts.append(operation_times_text(result.operation_times, on_cuda, verbose))
    if explanation is not None:
        parts.append(explanation_text(explanation, verbose))
    elif result.out_of_memory is not None:
        failure = result.out_of_memory
        parts.append(section(str(failure), _failure_text(result, failure)))
    if ways_out:
        parts.append(way_out_text(ways_out))
    if shown := [r for r in result.coverage.reasons if verbose or not r.configured]:
        parts.append(section("Operations not executed as recorded", _reasons_text(shown)))
    return "\n".join(parts)


def replay_object(
    result: ReplayResult,
    explanation: Explanation | None = None,
    ways_out: Sequence[Option] = (),
) -> JsonObject:
    """Give a replay its JSON form."""
    memory, flushes = result.memory, result.flushes
    return {
        "trace": result.trace,
        "device": result.device,
        "simulated": result.simulated,
        "device_memory_bytes": result.device_memory,
        "other_memory_bytes": result.other_memory,
        "allocator": result.allocator or None,
        "tensor_allocation_mode": result.mode,
        "window": result.window,
        "window_node_ids": list(result.node_ids),
        **_coverage_object(result.coverage),
        "iteration_time_ns": list(result.iteration_times),
        "operation_times": operation_times_object(result.operation_times),
        "peak_allocated_bytes": memory.allocated,
        "peak_active_bytes": memory.active,
        "peak_reserved_bytes": memory.reserved,
        "fragmentation": memory.fragmentation,
        "library_workspace_bytes": result.library_workspace,
        "flushes": {
            "count": flushes.count,
            "freed_bytes": flushes.freed,
            "recreated_bytes": flushes.recreated,
        },
        "plan": served_object(result.plan, result.plan_figures),
        "requests_elsewhere": [
            {"operator": entry.operator, "requests": entry.requests, "bytes": entry.size}
            for entry in result.elsewhere
        ],
        "out_of_memory": _failure_object(result),
        "explanation": None if explanation is None else explanation_object(explanation),
        "torch_settings": dict(result.torch_settings),
        "way_out": [option_object(option) for option in ways_out],
        "notes": list(result.notes),
    }


def _coverage_object(coverage: Coverage) -> JsonObject:
    """Count what became of the operations, and list the reasons."""
    return {
        "operations": {
            "total": coverage.total,
            Outcome.EXECUTED.value: coverage.executed,
            Outcome.SUBSTITUTED.value: coverage.substituted,
            Outcome.SKIPPED.value: coverage.skipped,
            "not_reached": coverage.not_reached,
        },
        "reasons": [
            {
                "name": reason.name,
                "count": reason.count,
                "outcome": reason.outcome.value,
                "reason": reason.reason,
                "configured": reason.configured,
            }
            for reason in coverage.reasons
        ],
        "collectives": {
            "count": coverage.collectives,
            "time": "absent" if coverage.collectives else None,
        },
    }


def _summary(result: ReplayResult) -> Iterator[tuple[str, str]]:
    coverage, memory = result.coverage, result.memory
    size = format_bytes(result.device_memory)
    kind = f"memory simulated, {size}" if result.simulated else f"memory measured, {size}"
    first, last = result.node_ids
    yield "Trace", f"{result.trace}, window {result.window} (nodes {first} to {last})"
    yield "Device", f"{result.device}, {kind}"
    yield "Allocator", result.allocator
    yield "Mode", result.mode
    if result.torch_settings:
        yield "As in the job", settings_text(result.torch_settings)
    yield (
        "Operations",
        f"{coverage.total} in the window: {coverage.executed} executed, "
        f"{coverage.substituted} substituted, {coverage.skipped} skipped"
        + (f", {coverage.not_reached} not reached" if coverage.not_reached else ""),
    )
    if configured := [reason for reason in coverage.reasons if reason.configured]:
        count, names = sum(reason.count for reason in configured), len({r.name for r in configured})
        yield "Left out", f"{count} operations of {names} names, as the configuration says"
    if coverage.collectives:
        yield (
            "Collectives",
            f"{coverage.collectives} not executed, which only replay modes comm and full do: "
            "their buffers live until they are complete, their time is absent",
        )
    yield "Time", _time_text(result)
    yield (
        "Peak memory",
        f"{format_bytes(memory.allocated)} allocated, {format_bytes(memory.active)} active, "
        f"{format_bytes(memory.reserved)} reserved; "
        f"fragmentation {format_share(memory.fragmentation)}",
    )
    if result.plan is not None and result.plan_figures is not None:
        yield "Plan", served_text(result.plan, result.plan_figures) + _elsewhere_text(result)
    if result.simulated:
        yield "Other memory", other_memory_text(result.other_memory)
    yield "Workspaces", _workspace_text(result)
    yield "Flushes", _flushes_text(result)


def settings_text(settings: Mapping[str, object]) -> str:
    """Write which of PyTorch's settings a replay takes from the job."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _time_text(result: ReplayResult) -> str:
    times = result.iteration_times
    if not times:
        return "none: no measured iteration came to its end"
    text = (
        f"{format_duration(statistics.median(times))} per iteration, median of {len(times)} "
        f"({format_duration(min(times))} to {format_duration(max(times))})"
    )
    if result.device == "meta":
        return f"{text}\nOn meta this is the time of shape computation only."
    if result.mode != Mode.PRE_ALLOCATE.value:
        text = f"{text}\nCreating the inputs, and their values, is part of it in this mode."
    return (
        f"{text}\nGaps between operators (host work, data loading) are not in a trace, nor in this."
    )


def _elsewhere_text(result: ReplayResult) -> str:
    if not result.elsewhere:
        return ""
    shown = [
        f"{entry.operator} ({entry.requests}, {format_bytes(entry.size)})"
        for entry in result.elsewhere[:_SHOWN]
    ]
    more = len(result.elsewhere) - len(shown)
    return (
        "\nFrom the caching allocator in each iteration: "
        + ", ".join(shown)
        + (f" and {more} other operators" if more else "")
    )


def _workspace_text(result: ReplayResult) -> str:
    if not result.simulated:
        return "those of the libraries that ran here are among the measured bytes"
    if result.library_workspace:
        return f"{format_bytes(result.library_workspace)} added for libraries such as cuBLAS"
    return (
        "none added; a trace does not record those of libraries such as cuBLAS "
        "(see --library-workspace)"
    )


def _flushes_text(result: ReplayResult) -> str:
    flushes = result.flushes
    if not flushes.count:
        return "none"
    return (
        f"{flushes.count} per iteration: {format_bytes(flushes.freed)} freed, "
        f"{format_bytes(flushes.recreated)} created again"
    )


def _reasons_text(reasons: Sequence[Reason]) -> str:
    return table(
        ("operator", "count", "outcome", "reason"),
        [(r.name, str(r.count), r.outcome.value, r.reason) for r in reasons],
        right=("count",),
    )


def _failure_text(result: ReplayResult, failure: OutOfMemoryError) -> str:
    place = "before any operation"
    if failure.operator is not None:
        place = f"at node {failure.node_id}, {failure.operator}"
    free = format_bytes(failure.largest_free)
    lines = [f"  It failed {place}; the largest free block was {free}. Live storages were"]
    if result.at_failure is not None:
        lines.insert(0, f"  {_UNEXPLAINED}")
    if note := arena_note(result.plan_figures, failure):
        return f"  It failed {place}, the first to ask the plan's arena for memory. {note}"
    groups: dict[tuple[str, str], list[int]] = {}
    for live in result.live:
        groups.setdefault((live.kind, live.producer or "-"), []).append(live.size)
    largest = sorted(groups.items(), key=lambda item: -sum(item[1]))
    rows = [
        (format_bytes(sum(sizes)), str(len(sizes)), kind, producer)
        for (kind, producer), sizes in largest[:_SHOWN]
    ]
    if others := [size for _, sizes in largest[_SHOWN:] for size in sizes]:
        rows.append((format_bytes(sum(others)), str(len(others)), "others", ""))
    lines.append(table(("bytes", "count", "kind", "producer"), rows, right=("bytes", "count")))
    return "\n".join(lines)


def _failure_object(result: ReplayResult) -> JsonObject | None:
    failure = result.out_of_memory
    if failure is None:
        return None
    return {
        **failure_object(failure),
        "live": [
            {
                "size_bytes": live.size,
                "kind": live.kind,
                "producer": live.producer,
                "first_node_id": live.first_node_id,
            }
            for live in result.live
        ],
    }
