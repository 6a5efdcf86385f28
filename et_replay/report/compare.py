"""Comparisons in; one table for each input, or their JSON objects, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from et_replay.comparison import AddressCheck, Comparison
from et_replay.events import MemoryHistory
from et_replay.report.device_memory import fraction_text
from et_replay.report.document import JsonObject, failure_object
from et_replay.report.job import is_job, worst_first
from et_replay.report.plan import arena_note, served_object, served_text
from et_replay.report.table import fields, table
from et_replay.units import counted, format_bytes, format_duration, format_share

_HEADING = (
    "allocator",
    "peak reserved",
    "peak allocated",
    "fragmentation",
    "segments",
    "device calls",
    "retries",
    "out of memory",
    "time",
)
_NUMBERS = _HEADING[1:7] + _HEADING[8:]


@dataclass(frozen=True)
class InputReport:
    """All rows of one input, and what is known of the input itself; its history if that is kept.

    `rank` is that of the job that the input is one of several of.
    """

    input: str
    kind: str
    events: int
    device_memory: int
    iterations: int
    addresses: AddressCheck | None
    rows: Sequence[Comparison]
    notes: Sequence[str]
    history: MemoryHistory | None = None
    rank: int | None = None
    memory_fraction: float | None = None


def compare_text(reports: Sequence[InputReport]) -> str:
    """Write a table for each input, its rows sorted by peak reserved, failures last.

    The ranks of a job have one table, the worst rank first, and that one a table of its own.
    """
    if is_job(reports):
        return _job_text(worst_first(reports, _need))
    return "\n\n".join(_report_text(report) for report in reports)


def compare_objects(reports: Sequence[InputReport]) -> list[JsonObject]:
    """Give every row its JSON form, in the order of the tables."""
    return [
        row_object(report, row)
        for report in worst_first(reports, _need)
        for row in _sorted(report.rows)
    ]


def _need(report: InputReport) -> tuple[float, ...]:
    """Say how bad it is: how many allocators ran out of memory, the first's reserved, allocated."""
    failed = sum(row.out_of_memory is not None for row in report.rows)
    first = report.rows[0].statistics
    return failed, first.peak_reserved_bytes, first.peak_allocated_bytes


def _job_text(reports: Sequence[InputReport]) -> str:
    allocators = [row.allocator for row in reports[0].rows]
    rows = [
        (str(report.rank), *(_reserved(row) for row in report.rows), Path(report.input).name)
        for report in reports
    ]
    ranks = table(("rank", *allocators, "input"), rows, right=("rank", *allocators))
    worst = _report_text(reports[0])
    return f"Peak reserved by rank, the worst first\n{ranks}\n\nRank {reports[0].rank}\n{worst}"


def _reserved(row: Comparison) -> str:
    return _failure(row) if row.out_of_memory else format_bytes(row.statistics.peak_reserved_bytes)


def _report_text(report: InputReport) -> str:
    rows = [
        (
            row.allocator,
            format_bytes(row.statistics.peak_reserved_bytes),
            format_bytes(row.statistics.peak_allocated_bytes),
            format_share(row.fragmentation),
            _segments(row),
            str(_device_calls(row)),
            str(row.statistics.alloc_retries),
            _failure(row),
            format_duration(row.duration),
        )
        for row in _sorted(report.rows)
    ]
    return "\n".join([fields(_summary(report)), "", table(_HEADING, rows, right=_NUMBERS)])


def _summary(report: InputReport) -> Iterator[tuple[str, str]]:
    yield "Input", f"{report.input}, {report.kind}"
    yield "Events", f"{report.events}, {_times(report.iterations)} without a reset"
    versions = sorted({row.torch_version for row in report.rows})
    yield "Allocators", f"as in torch {', '.join(versions)}, device memory simulated"
    capacity = format_bytes(report.device_memory)
    yield "Capacity", f"{capacity}{fraction_text(report.memory_fraction)}"
    if report.addresses is not None:
        yield "Addresses", _addresses(report.addresses)
    for row in report.rows:
        if row.plan is not None and row.plan_figures is not None:
            yield "Plan", served_text(row.plan, row.plan_figures)
            yield from (("Note", note) for note in row.plan.notes)
        if note := arena_note(row.plan_figures, row.out_of_memory):
            yield "Note", f"{row.allocator}: {note}"
    drift = [row for row in report.rows if len(set(row.reserved_by_iteration)) > 1]
    for row in drift:
        first, last = row.reserved_by_iteration[0], row.reserved_by_iteration[-1]
        yield (
            "Drift",
            f"{row.allocator}: {format_bytes(first)} reserved after the first iteration, "
            f"{format_bytes(last)} after iteration {len(row.reserved_by_iteration)}",
        )


def _addresses(check: AddressCheck) -> str:
    text = f"{check.equal} of {check.compared} recorded ones come out again"
    text += f" (native, as in torch {check.torch_version})"
    if check.first_difference is not None:
        event, recorded, simulated = check.first_difference
        text += f"\nfirst difference: event {event}, recorded {recorded:#x}, got {simulated:#x}"
    return text


def _segments(row: Comparison) -> str:
    """Count segments at the peak, or where memory is mapped into reserved ranges, the maps."""
    statistics = row.statistics
    if statistics.peak_segments or not statistics.device_allocs:
        return str(statistics.peak_segments)
    return counted(statistics.device_allocs, "map")


def _failure(row: Comparison) -> str:
    if row.undefined:
        return f"undefined in torch {row.torch_version}"
    if row.out_of_memory is None:
        return "no"
    failure = row.out_of_memory
    if failure.event is None:
        return "before the first event"
    node = "" if failure.node_id is None else f", node {failure.node_id},"
    return f"event {failure.event}{node} of iteration {row.failed_iteration}"


def row_object(report: InputReport, row: Comparison) -> JsonObject:
    """Give one row its JSON form."""
    statistics, check = row.statistics, report.addresses
    return {
        "input": report.input,
        "rank": report.rank,
        "allocator": row.allocator,
        "torch_version": row.torch_version,
        "events": report.events,
        "iterations": report.iterations,
        "device_memory_bytes": report.device_memory,
        "memory_fraction": report.memory_fraction,
        "peak_allocated_bytes": statistics.peak_allocated_bytes,
        "peak_active_bytes": statistics.peak_active_bytes,
        "peak_reserved_bytes": statistics.peak_reserved_bytes,
        "fragmentation": row.fragmentation,
        "segments": statistics.peak_segments,
        "device_calls": _device_calls(row),
        "retries": statistics.alloc_retries,
        "reserved_by_iteration_bytes": list(row.reserved_by_iteration),
        "out_of_memory": _failure_object(row),
        "undefined": row.undefined or None,
        "plan": served_object(row.plan, row.plan_figures),
        "addresses": None if check is None else _check_object(check),
        "simulation_time_ns": row.duration,
        "notes": list(report.notes),
    }


def _failure_object(row: Comparison) -> JsonObject | None:
    failure = row.out_of_memory
    if failure is None:
        return None
    return {
        **failure_object(failure),
        "event": failure.event,
        "iteration": row.failed_iteration,
    }


def _check_object(check: AddressCheck) -> JsonObject:
    first = check.first_difference
    return {
        "torch_version": check.torch_version,
        "compared": check.compared,
        "equal": check.equal,
        "first_difference": None
        if first is None
        else dict(zip(("event", "recorded_address", "simulated_address"), first, strict=True)),
    }


def _sorted(rows: Sequence[Comparison]) -> list[Comparison]:
    def rank(row: Comparison) -> tuple[bool, int]:
        failed = row.out_of_memory is not None or row.undefined != ""
        return failed, row.statistics.peak_reserved_bytes

    return sorted(rows, key=rank)


def _device_calls(row: Comparison) -> int:
    return row.statistics.device_allocs + row.statistics.device_frees


def _times(iterations: int) -> str:
    return "once" if iterations == 1 else f"{iterations} times"
