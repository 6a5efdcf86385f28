"""Replays under several allocators in, measured beside simulated; a table or JSON objects out."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from et_replay.comparison import Comparison
from et_replay.events import Action, MemoryHistory
from et_replay.origins import MemoryClass
from et_replay.program.requests import BEYOND
from et_replay.replay.result import ReplayResult
from et_replay.report.compare import InputReport, row_object
from et_replay.report.document import JsonObject, failure_object
from et_replay.report.plan import served_text
from et_replay.report.table import fields, table
from et_replay.units import counted, format_bytes, format_duration, format_share

_HEADING = (
    "allocator",
    "reserved",
    "simulated",
    "allocated",
    "simulated",
    "fragmentation",
    "iteration",
    "out of memory",
)
_SHOWN = 6


@dataclass(frozen=True)
class DeviceReport:
    """The simulated rows of one trace, and the replay that was measured for each, by allocator.

    The history of `compared` is what the replay was seen to ask for. `failures` says why there is
    no replay under other allocators.
    """

    compared: InputReport
    measured: Mapping[str, ReplayResult]
    failures: Mapping[str, str] = field(default_factory=dict)


def device_text(report: DeviceReport) -> str:
    """Write the table of one trace, in the order of the allocators."""
    simulated = {row.allocator: row for row in report.compared.rows}
    rows = [
        _row(allocator, result, simulated.get(allocator))
        for allocator, result in report.measured.items()
    ]
    return "\n".join([fields(_summary(report)), "", table(_HEADING, rows, right=_HEADING[1:7])])


def device_objects(report: DeviceReport) -> Iterator[JsonObject]:
    """Give every row its JSON form: that of a simulated comparison, and what was measured."""
    simulated = {row.allocator: row for row in report.compared.rows}
    for allocator, result in report.measured.items():
        row = simulated.get(allocator)
        compared = {} if row is None else row_object(report.compared, row)
        yield {
            **compared,
            "input": report.compared.input,
            "allocator": allocator,
            "tensor_allocation_mode": result.mode,
            "measured": _measured_object(result),
            "beyond_the_trace": [
                {
                    "operator": name,
                    "kept": kept,
                    "requests": len(sizes),
                    "largest_bytes": max(sizes),
                }
                for (name, kept), sizes in _beyond_the_trace(report.compared.history)
            ],
        }


def _row(allocator: str, result: ReplayResult, row: Comparison | None) -> tuple[str, ...]:
    memory, times = result.memory, result.iteration_times
    return (
        allocator,
        format_bytes(memory.reserved),
        "-" if row is None else format_bytes(row.statistics.peak_reserved_bytes),
        format_bytes(memory.allocated),
        "-" if row is None else format_bytes(row.statistics.peak_allocated_bytes),
        format_share(memory.fragmentation),
        format_duration(statistics.median(times)) if times else "-",
        "no" if result.out_of_memory is None else f"node {result.out_of_memory.node_id}",
    )


def _summary(report: DeviceReport) -> Iterator[tuple[str, str]]:
    yield "Input", f"{report.compared.input}, execution trace"
    for allocator, reason in report.failures.items():
        yield "Failed", f"{allocator}: {reason}"
    first = next(iter(report.measured.values()), None)
    if first is None:
        return
    coverage = first.coverage
    yield "Window", first.window
    yield (
        "Device",
        f"{first.device}, torch {first.torch_version}, {format_bytes(first.device_memory)};"
        " each allocator in a process of its own",
    )
    yield "Mode", first.mode
    yield (
        "Operations",
        f"{coverage.total} in the window: {coverage.executed} executed,"
        f" {coverage.substituted} substituted, {coverage.skipped} skipped",
    )
    yield "Time", f"median of {report.compared.iterations} iterations"
    for allocator, result in report.measured.items():
        if result.allocator != allocator:
            yield "In force", f"{allocator}: {result.allocator}"
        if result.plan is not None and result.plan_figures is not None:
            yield "Plan", served_text(result.plan, result.plan_figures)
    yield "Beyond the trace", _beyond_text(report.compared.history)


def _beyond_text(history: MemoryHistory | None) -> str:
    """Name what operators took for themselves and libraries kept; the largest first."""
    lines = [
        f"{name} {'keeps' if kept else 'takes and frees'} {len(sizes)} of up to"
        f" {format_bytes(max(sizes))}"
        for (name, kept), sizes in _beyond_the_trace(history)
    ]
    more = len(lines) - _SHOWN
    text = "\n".join(lines[:_SHOWN]) or "nothing was asked for"
    return f"{text}\nand {counted(more, 'smaller one')}" if more > 0 else text


def _beyond_the_trace(
    history: MemoryHistory | None,
) -> list[tuple[tuple[str, bool], list[int]]]:
    """List the requests that no storage of the trace stands for, by operator and whether kept.

    Those of a steady iteration, and of what is kept those before it.
    """
    if history is None:
        return []
    found: dict[tuple[str, bool], list[int]] = defaultdict(list)
    events, begin = history.events, int(history.events.steps[0])
    for row in range(len(events)):
        origin = history.origins.get(int(events.storage[row]))
        if events.action[row] != Action.ALLOC or origin is None or origin.within != BEYOND:
            continue
        kept = origin.memory_class is MemoryClass.LIBRARY
        if kept or row >= begin:
            found[origin.maker, kept].append(int(events.size[row]))
    return sorted(found.items(), key=lambda item: -max(item[1]))


def _measured_object(result: ReplayResult) -> JsonObject:
    memory, failure = result.memory, result.out_of_memory
    return {
        "device": result.device,
        "configuration": result.allocator,
        "torch": result.torch_version,
        "device_memory_bytes": result.device_memory,
        "iteration_time_ns": list(result.iteration_times),
        "peak_allocated_bytes": memory.allocated,
        "peak_active_bytes": memory.active,
        "peak_reserved_bytes": memory.reserved,
        "fragmentation": memory.fragmentation,
        "out_of_memory": None
        if failure is None
        else {
            **failure_object(failure),
            "node_id": failure.node_id,
            "operator": failure.operator,
        },
    }
