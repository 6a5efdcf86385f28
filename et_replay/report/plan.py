"""Plans, and what became of the requests that one served, in; text and JSON objects out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from et_replay.errors import OutOfMemoryError
from et_replay.planning import (
    Plan,
    StorageClass,
    coverage,
    is_by_offset,
    is_by_stream,
    sizes_by_class,
)
from et_replay.report.document import JsonObject
from et_replay.report.job import is_job, worst_first
from et_replay.report.table import fields, table
from et_replay.simulation import PlanFigures, Served
from et_replay.units import counted, format_bytes, format_duration

_CLASSES = {
    StorageClass.RESIDENT: "resident (there from the start, to the end)",
    StorageClass.LASTING: "lasting (made along the way, there at the end)",
    StorageClass.PASSING: "passing (freed along the way)",
    StorageClass.CROSSING: "crossing (made in one iteration, freed in a later one)",
    StorageClass.PRIVATE: "in private pools (left out)",
    StorageClass.VARYING: "varying (not always of the same size, or not always there: no address)",
    StorageClass.UNMATCHED: "not part of what repeats (left out)",
}


@dataclass(frozen=True)
class PlanReport:
    """A plan and where it comes from; `checked` says in a sentence what was found to be right.

    `notes` are those of the input, and `rank` is that of the job that it is one of several of.
    """

    input: str
    plan: Plan
    output: str | None = None
    checked: str = ""
    notes: Sequence[str] = ()
    rank: int | None = None


def plan_text(reports: Sequence[PlanReport]) -> str:
    """Describe each plan; those of a job's ranks in one table, the worst rank first and in full."""
    if is_job(reports):
        return _job_text(worst_first(reports, _need))
    return "\n\n".join(fields(_summary(report)) for report in reports)


def plan_objects(reports: Sequence[PlanReport]) -> list[JsonObject]:
    """Give every plan its JSON form, in the order of the text."""
    return [_plan_object(report) for report in worst_first(reports, _need)]


def _need(report: PlanReport) -> tuple[float, ...]:
    return (report.plan.arena_bytes,)


def _job_text(reports: Sequence[PlanReport]) -> str:
    heading = ("rank", "arena", "of the lower bound", "storages", "time", "input", "written")
    rows = [
        (
            str(report.rank),
            format_bytes(report.plan.arena_bytes),
            f"{_ratio(report.plan):.5f}",
            str(len(report.plan.lifetimes)),
            format_duration(report.plan.planning_time_ns),
            Path(report.input).name,
            Path(report.output).name if report.output else "-",
        )
        for report in reports
    ]
    ranks = table(heading, rows, right=heading[:5])
    worst = fields(_summary(reports[0]))
    return f"Plans by rank, the worst first\n{ranks}\n\nRank {reports[0].rank}\n{worst}"


def _plan_object(report: PlanReport) -> JsonObject:
    """Give a plan its JSON form; the addresses are in the plan file."""
    plan = report.plan
    return {
        "input": report.input,
        "rank": report.rank,
        "storages": len(plan.lifetimes),
        "planned_storages": int(plan.covered.sum()),
        **_figures(plan),
        "ratio": _ratio(plan),
        "classes": {
            kind.name.lower(): {"storages": count, "bytes": size}
            for kind, (count, size) in sizes_by_class(plan.lifetimes).items()
        },
        "iteration_ticks": None if plan.iteration is None else list(plan.iteration),
        "iteration": _iteration(plan),
        "output": report.output,
        "notes": [*report.notes, *plan.notes],
    }


def served_text(plan: Plan, figures: PlanFigures) -> str:
    """Say how a plan served: in one line, or with a second for what it had no address for."""
    text = (
        f"arena {format_bytes(plan.arena_bytes)}, {_bound_text(plan)},"
        f" made in {format_duration(plan.planning_time_ns)}; {_requests(figures.planned)} at"
        " planned addresses"
    )
    others = figures.reused.requests + figures.fallback.requests
    if not others:
        return f"{text}, no other"
    return (
        f"{text}\n{_requests(figures.reused)} in its idle space, {_requests(figures.fallback)} from"
        " the caching allocator, which reserved up to"
        f" {format_bytes(figures.fallback_peak_reserved)}; {figures.displaced.requests} found their"
        " address in use"
    )


def arena_note(figures: PlanFigures | None, failure: OutOfMemoryError | None) -> str:
    """Say so where what did not fit the device was a plan's arena; "" where it was not."""
    if figures is None or failure is None or failure.requested != figures.arena:
        return ""
    if figures.planned.requests or not figures.arena:
        return ""
    return (
        f"The plan's arena of {format_bytes(figures.arena)} is taken from the device as a whole,"
        f" and does not fit its {format_bytes(failure.capacity)}: give it more with"
        " --device-memory, or serve without a plan."
    )


def served_object(plan: Plan | None, figures: PlanFigures | None) -> JsonObject | None:
    """Give what a plan served its JSON form."""
    if plan is None or figures is None:
        return None
    served = {"planned": figures.planned, "reused": figures.reused}
    served |= {"displaced": figures.displaced, "fallback": figures.fallback}
    return {
        **_figures(plan),
        **{
            name: {"requests": counted.requests, "bytes": counted.bytes}
            for name, counted in served.items()
        },
        "fallback_peak_reserved_bytes": figures.fallback_peak_reserved,
    }


def _summary(report: PlanReport) -> Iterator[tuple[str, str]]:
    plan = report.plan
    yield "Input", report.input
    classes = [
        f"{count} {_CLASSES[kind]}, {format_bytes(size)}"
        for kind, (count, size) in sizes_by_class(plan.lifetimes).items()
    ]
    yield "Storages", "\n".join([str(len(plan.lifetimes)), *classes])
    if plan.iteration is not None:
        begin, end = plan.iteration
        shares = [_share(share, fate.value) for fate, share in coverage(plan).items()]
        text = f"ticks {begin} to {end} repeat, any number of times"
        yield "Iteration", "\n".join([text, *shares])
    yield "Lower bound", f"{format_bytes(plan.lower_bound_bytes)} {_kind_of_bound(plan)}"
    yield "Arena", f"{format_bytes(plan.arena_bytes)}, {_bound_text(plan)}"
    yield "Method", plan.method or "none needed"
    yield "Time", format_duration(plan.planning_time_ns)
    if report.checked:
        yield "Checked", report.checked
    if report.output is not None:
        yield "Written", report.output
    for note in plan.notes:
        yield "Note", note


def _kind_of_bound(plan: Plan) -> str:
    if is_by_offset(plan):
        return "forced by a fixed offset"
    return "live at once in each stream, added up" if is_by_stream(plan) else "live at once"


def _share(share: Served, what: str) -> str:
    return f"{_requests(share)} {what}"


def _iteration(plan: Plan) -> JsonObject | None:
    """Give the requests of the iteration that repeats their JSON form, by what becomes of them."""
    if plan.repetition is None:
        return None
    return {
        "begins_ticks": list(plan.repetition.begins),
        "marked": plan.repetition.marked,
        "requests": {
            fate.name.lower(): {"requests": share.requests, "bytes": share.bytes}
            for fate, share in coverage(plan).items()
        },
    }


def _figures(plan: Plan) -> JsonObject:
    return {
        "arena_bytes": plan.arena_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "proven": plan.proven,
        "method": plan.method,
        "planning_time_ns": plan.planning_time_ns,
    }


def _ratio(plan: Plan) -> float:
    return plan.arena_bytes / plan.lower_bound_bytes if plan.lower_bound_bytes else 1.0


def _bound_text(plan: Plan) -> str:
    if plan.arena_bytes == plan.lower_bound_bytes:
        return "equal to the lower bound"
    text = f"{_ratio(plan):.5f} of the lower bound"
    return f"{text}, and proven to be the smallest" if plan.proven else text


def _requests(share: Served) -> str:
    return f"{counted(share.requests, 'request')} of {format_bytes(share.bytes)}"
