"""Fits in; one table for each input and the worst of all, or their JSON objects, out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from et_replay.explain import Explanation, Fit
from et_replay.report.device_memory import other_memory_text
from et_replay.report.document import JsonObject, classes_object
from et_replay.report.job import is_job, worst_first
from et_replay.report.table import fields, table
from et_replay.units import format_bytes

_HEADING = ("allocator", "device memory", "least device", "retries", "peak allocated", "note")
_NUMBERS = _HEADING[1:5]
_BOUND = "ideal"


@dataclass(frozen=True)
class FitReport:
    """All fits of one input; `other_memory` is added to each, and `peak` explains the first.

    `rank` is that of the job that the input is one of several of.
    """

    input: str
    kind: str
    mode: str
    torch_version: str
    other_memory: int
    fits: Sequence[Fit]
    peak: Explanation | None
    notes: Sequence[str]
    rank: int | None = None


def fit_text(reports: Sequence[FitReport]) -> str:
    """Write a table for each input; of several inputs, also which one needs most.

    The ranks of a job have one table, the worst rank first, and that one a table of its own.
    """
    if is_job(reports):
        return _job_text(worst_first(reports, _need))
    texts = [_report_text(report) for report in reports]
    if len(reports) > 1:
        texts.append(_worst_text(reports))
    return "\n\n".join(texts)


def fit_objects(reports: Sequence[FitReport]) -> list[JsonObject]:
    """Give every fit its JSON form."""
    return [
        _fit_object(report, fit)
        for report in worst_first(reports, _need)
        for fit in _sorted(report.fits)
    ]


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


def _need(report: FitReport) -> tuple[float, ...]:
    """Say how much the first allocator needs that torch defines, and what is allocated of that.

    Beyond all where there is none.
    """
    first = next((fit for fit in report.fits if not fit.undefined), None)
    return (math.inf,) if first is None else (first.device_memory, first.peak_allocated)


def _job_text(reports: Sequence[FitReport]) -> str:
    """Write what each rank needs under the first allocator and under the best, then more of one."""
    first = reports[0].fits[0].allocator
    rows = []
    for report in reports:
        real = (fit for fit in _sorted(report.fits) if fit.allocator != _BOUND)
        best = next(real, report.fits[0])
        needs = (
            "-" if fit.undefined else format_bytes(fit.device_memory + report.other_memory)
            for fit in (report.fits[0], best)
        )
        rows.append((str(report.rank), *needs, best.allocator, Path(report.input).name))
    ranks = table(("rank", first, "least", "of", "input"), rows, right=("rank", first, "least"))
    worst = f"Rank {reports[0].rank}\n{_report_text(reports[0])}"
    parts = (f"Device memory by rank, the worst first\n{ranks}", worst, _worst_text(reports))
    return "\n\n".join(parts)


def _fit_object(report: FitReport, fit: Fit) -> JsonObject:
    return {
        "input": report.input,
        "rank": report.rank,
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
            (fit.device_memory, fit.peak_allocated, report.input)
            for report in reports
            for fit in report.fits
            if fit.allocator == allocator and not fit.undefined
        ]
        if needs:
            most, _, worst = max(needs, key=lambda need: need[:2])
            name = Path(worst).name if is_job(reports) else worst
            rows.append((allocator, format_bytes(most + reports[0].other_memory), name))
    return "Largest of all inputs\n" + table(
        ("allocator", "device memory", "input"), rows, right=("device memory",)
    )


def _sorted(fits: Sequence[Fit]) -> list[Fit]:
    return sorted(fits, key=lambda fit: (fit.undefined != "", fit.device_memory))
