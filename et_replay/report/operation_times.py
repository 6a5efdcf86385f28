"""The times of operations in; a table by class that a person reads, or their JSON objects, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from et_replay.replay.result import ClassTime, OperatorTime
from et_replay.report.document import JsonObject
from et_replay.report.table import section, table
from et_replay.units import counted, format_duration, format_share

_SHOWN = 8
"""Rows; classes beyond are added up in the last one."""


def operation_times_text(
    classes: Sequence[ClassTime], on_cuda: bool, verbose: bool, rank: int | None = None
) -> str:
    """Write what each class of operations takes of an iteration, with `verbose` each operator.

    The title names the `rank` of a job whose operations these are.
    """
    total = sum(each.median for each in classes)
    if verbose:
        rows = [row for each in classes for row in _class_rows(each, total)]
    else:
        rows = [_row(each.operation_class.value, "", each, total) for each in classes[:_SHOWN]]
        if len(classes) > _SHOWN:
            rows[-1] = _others(classes[_SHOWN - 1 :], total)
    heading = ["time", "share", "operations", "class", "operator"]
    if not verbose:
        heading, rows = heading[:-1], [row[:-1] for row in rows]
    body = table(heading, rows, right=("time", "share", "operations"))
    note = "  From operation to operation, so with what the host does between them."
    if on_cuda:
        note = (
            "  Between events on the device: where it idles, waiting for the host to launch an"
            " operation is part of that operation's time."
        )
    iterations = counted(len(classes[0].times), "further iteration")
    of_rank = "" if rank is None else f" in rank {rank}"
    title = f"Time by class of operation{of_rank}, median of {iterations}"
    return section(title, f"{body}\n{note}")


def operation_times_object(classes: Sequence[ClassTime]) -> list[JsonObject]:
    """Give the times of operations their JSON form."""
    return [
        {
            "class": each.operation_class.value,
            **_figures(each),
            "operators": [{"name": o.name, **_figures(o)} for o in each.operators],
        }
        for each in classes
    ]


def _figures(each: ClassTime | OperatorTime) -> JsonObject:
    return {
        "operations": each.operations,
        "median_ns": each.median,
        "min_ns": min(each.times),
        "max_ns": max(each.times),
    }


def _class_rows(each: ClassTime, total: int) -> Iterator[list[str]]:
    yield _row(each.operation_class.value, "", each, total)
    for operator in each.operators:
        yield _row("", operator.name, operator, total)


def _row(kind: str, operator: str, each: ClassTime | OperatorTime, total: int) -> list[str]:
    share = each.median / total if total else 0
    return [
        format_duration(each.median),
        format_share(share),
        str(each.operations),
        kind,
        operator,
    ]


def _others(classes: Sequence[ClassTime], total: int) -> list[str]:
    median = sum(each.median for each in classes)
    operations = sum(each.operations for each in classes)
    share = format_share(median / total if total else 0)
    return [format_duration(median), share, str(operations), f"{len(classes)} others", ""]
