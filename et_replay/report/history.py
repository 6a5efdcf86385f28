"""A memory history that was served again in; the summary a person reads, or its JSON, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from et_replay.comparison import Comparison
from et_replay.events import MemoryHistory
from et_replay.explain import Explanation, Option
from et_replay.report.device_memory import fraction_text, other_memory_text
from et_replay.report.document import JsonObject, failure_object
from et_replay.report.explanation import (
    explanation_object,
    explanation_text,
    option_object,
    way_out_text,
)
from et_replay.report.table import fields
from et_replay.units import counted, format_bytes, format_share


@dataclass(frozen=True, eq=False)
class HistoryReport:
    """A history, what its allocator made of it, and why.

    `proven` says that `device_memory` is what the history proves. `failure` is what failed, if
    anything did: there are `options` then. `explanation` is of what was to be explained.
    """

    history: MemoryHistory
    served: Comparison
    device_memory: int
    proven: bool
    other_memory: int
    memory_fraction: float | None
    failure: Explanation | None
    explanation: Explanation | None
    options: Sequence[Option]


def history_text(report: HistoryReport, verbose: bool = False) -> str:
    """Summarise what was served; after that, the failure or the peak, and what would fit."""
    parts = [fields(_summary(report))]
    if report.explanation is not None:
        parts.append(explanation_text(report.explanation, verbose))
    if report.options:
        parts.append(way_out_text(report.options))
    return "\n".join(parts)


def history_object(report: HistoryReport) -> JsonObject:
    """Give it its JSON form: the keys of a replay, as far as there is no operation."""
    history, statistics = report.history, report.served.statistics
    explanation = report.explanation
    failure = None if report.failure is None else report.failure.failure
    return {
        "trace": history.source,
        "kind": history.kind,
        "device": "none",
        "simulated": True,
        "events": len(history.events),
        "allocator": report.served.allocator,
        "torch_version": report.served.torch_version,
        "device_memory_bytes": report.device_memory,
        "other_memory_bytes": report.other_memory,
        "memory_fraction": report.memory_fraction,
        "peak_allocated_bytes": statistics.peak_allocated_bytes,
        "peak_active_bytes": statistics.peak_active_bytes,
        "peak_reserved_bytes": statistics.peak_reserved_bytes,
        "out_of_memory": None if failure is None else failure_object(failure),
        "explanation": None if explanation is None else explanation_object(explanation),
        "way_out": [option_object(option) for option in report.options],
        "undefined": report.served.undefined or None,
        "notes": list(history.notes),
    }


def _summary(report: HistoryReport) -> Iterator[tuple[str, str]]:
    history, served = report.history, report.served
    statistics = served.statistics
    yield "History", f"{history.source}, {history.kind}, {len(history.events)} events"
    yield "Allocator", f"{served.allocator}, as in torch {served.torch_version}"
    yield (
        "Device",
        f"simulated, {format_bytes(report.device_memory)}"
        f"{fraction_text(report.memory_fraction)}"
        f"{' (what the file proves that PyTorch could get)' if report.proven else ''}",
    )
    yield "Other memory", other_memory_text(report.other_memory)
    yield (
        "Peak memory",
        f"{format_bytes(statistics.peak_allocated_bytes)} allocated, "
        f"{format_bytes(statistics.peak_reserved_bytes)} reserved; "
        f"fragmentation {format_share(served.fragmentation)}",
    )
    yield "Failures", _failures_text(report)


def _failures_text(report: HistoryReport) -> str:
    if report.served.undefined:
        return f"undefined in torch: {report.served.undefined}"
    if not len(report.history.events):
        return "there is no event to serve: the state alone is shown"
    if report.failure is None:
        return "none: every request is served (--explain peak explains the peak)"
    failures = report.failure.failures
    told = [
        (failures.new, "out of memory"),
        (failures.reproduced, "out of memory as recorded"),
        (failures.absent, "recorded as out of memory, but served here"),
    ]
    texts = [f"{counted(len(rows), 'request')} {what}" for rows, what in told if rows]
    if report.failure.row < 0:
        texts.append("what lives before the first event does not fit")
    return "; ".join(texts)
