"""Fits in; one table for each input and the worst of all, or their JSON objects, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from et_replay.explain import Explanation, Fit
from et_replay.report.document import JsonObject, classes_object
from et_replay.report.other_memory import other_memory_text
from et_replay.report.table import fields, table
from et_replay.units import format_bytes

_HEADING = ("allocator", "device memory", "least device", "retries", "peak allocated", "note")
_NUMBERS = _HEADING[1:5]


@dataclass(frozen=True)
class FitReport:
    """All fits of one input; `other_memory` is added to each, and `peak` explains the first."""

    input: str
    kind: str
    mode: str
    torch_version: str
    other_memory: int
    fits: Sequence[Fit]
    peak: Explanation | None
    notes: Sequence[str]


def fit_text(reports: Sequence[FitReport]) -> str:
    """Write a table for each input; of several inputs, also which one needs most."""
    texts = [_report_text(report) for report in reports]
    if len(reports) > 1:
        texts.append(_worst_text(reports))
    return "\n\n".join(texts)


def fit_objects(reports: Sequence[FitReport]) -> list[JsonObject]:
    """Give every fit its JSON form."""
    return [_fit_object(report, fit) for report in reports for fit in _sorted(report.fits)]


def fit_object(fit: Fit, other_memory: int = 0) -> JsonObject:
    """Give a fit its JSON form; the sizes are null where torch's behaviour is undefined."""
    known = not fit.undefined
    return {
        "allocator": fit.allocator,
        "device_memory_bytes": fit.device_memory + other_memory if known else None,
        "least_device_memory_bytes": fit.least + other_memory if known else None,
        "retries": fit.retries if known else None,
        "monotone": fit.monotone,
        "peak_allocated_bytes": fit.peak_allocated if known else None,
        "undefined": fit.undefined or None,
    }


def _fit_object(report: FitReport, fit: Fit) -> JsonObject:
    return {
        "input": report.input,
        "tensor_allocation_mode": report.mode or None,
        "torch_version": report.torch_version,
        "other_memory_bytes": report.other_memory,
        **fit_object(fit, report.other_memory),
        "live_at_peak": None if report.peak is None else classes_object(report.peak.classes),
        "notes": list(report.notes),
    }


def _report_text(report: FitReport) -> str:
    rows = [_row(fit, report.other_memory) for fit in _sorted(report.fits)]
    return "\n".join([fields(_summary(report)), "", table(_HEADING, rows, right=_NUMBERS)])


def _summary(report: FitReport) -> Iterator[tuple[str, str]]:
    yield "Input", f"{report.input}, {report.kind}"
    if report.mode:
        yield "Mode", report.mode
    yield "Allocators", f"as in torch {report.torch_version}, device memory simulated"
    yield "Other memory", other_memory_text(report.other_memory)
    if report.peak is not None:
        live = sum(report.peak.classes.values()) or 1
        shares = ", ".join(
            f"{kind.value} {100 * size / live:.0f} %" for kind, size in report.peak.classes.items()
        )
        yield "At the peak", f"live are {shares}"


def _row(fit: Fit, other: int) -> tuple[str, ...]:
    if fit.undefined:
        return fit.allocator, "-", "-", "-", "-", f"undefined in torch: {fit.undefined}"
    note = "" if fit.monotone else "some sizes below the least serve, or above it fail"
    return (
        fit.allocator,
        format_bytes(fit.device_memory + other),
        format_bytes(fit.least + other),
        str(fit.retries),
        format_bytes(fit.peak_allocated),
        note,
    )


def _worst_text(reports: Sequence[FitReport]) -> str:
    rows = []
    for allocator in dict.fromkeys(fit.allocator for fit in reports[0].fits):
        needs = [
            (fit.device_memory, report.input)
            for report in reports
            for fit in report.fits
            if fit.allocator == allocator and not fit.undefined
        ]
        if needs:
            most, worst = max(needs)
            rows.append((allocator, format_bytes(most + reports[0].other_memory), worst))
    return "Largest of all inputs\n" + table(
        ("allocator", "device memory", "input"), rows, right=("device memory",)
    )


def _sorted(fits: Sequence[Fit]) -> list[Fit]:
    return sorted(fits, key=lambda fit: (fit.undefined != "", fit.device_memory))
