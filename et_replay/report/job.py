"""Reports on the inputs of a command in; told apart whether they are the ranks of one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class OfRank(Protocol):
    """What a report has that may be on one rank of a job."""

    @property
    def rank(self) -> int | None: ...


_Report = TypeVar("_Report", bound=OfRank)


def is_job(reports: Sequence[OfRank]) -> bool:
    """Tell whether the reports are on several ranks of a job, each on another one."""
    ranks = {report.rank for report in reports}
    return len(ranks) == len(reports) > 1 and None not in ranks


def worst_first(
    reports: Sequence[_Report], need: Callable[[_Report], tuple[float, ...]]
) -> list[_Report]:
    """Put the rank first that needs most; inputs that are no job stay in their order."""
    if not is_job(reports):
        return list(reports)
    return sorted(reports, key=lambda report: (*(-figure for figure in need(report)), report.rank))
