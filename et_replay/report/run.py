"""Iterations of a script under an allocator in; a line for each, and JSON objects, out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from et_replay.report.document import JsonObject
from et_replay.units import counted, format_bytes, format_duration, format_share

Iteration = Mapping[str, Any]
_SERVED = ("planned", "reused", "fallback")
_TOLD = ("iteration", "by", "duration_ns")
_STRAYS = 0.01
"""The share of an iteration's requests without a match from which it differs from its plan."""


@dataclass
class RunReport:
    """The iterations of one rank, as its process told of them."""

    rank: int
    allocator: str
    plan: str | None
    iterations: list[Iteration] = field(default_factory=list)
    strayed: int | None = None

    def add(self, iteration: Iteration) -> str:
        """Take in an iteration; return what there is to say of it."""
        self.iterations.append(iteration)
        lines = [f"{self._who()}{_line(iteration)}"]
        if self.plan is not None and self.strayed is None and _strays(iteration):
            self.strayed = iteration["iteration"]
            lines.append(f"{self._who()}{_deviation(iteration)}")
        return "\n".join(lines)

    def summary(self) -> str:
        """Say what all iterations after the first took; "" where there is none."""
        rest = [each["figures"] for each in self.iterations[1:]]
        if not rest:
            return ""
        reserved = max(each["peak_reserved_bytes"] for each in rest)
        allocated = max(each["peak_allocated_bytes"] for each in rest)
        duration = statistics.median(each["duration_ns"] for each in self.iterations[1:])
        return (
            f"{self._who()}{counted(len(self.iterations), 'iteration')} under {self.allocator};"
            f" after the first: reserved up to {format_bytes(reserved)}, allocated up to"
            f" {format_bytes(allocated)}, utilization {format_share(allocated / max(reserved, 1))},"
            f" {format_duration(duration)} at the median"
        )

    def object(self, exit_code: int) -> JsonObject:
        """Give it its JSON form."""
        return {
            "rank": self.rank,
            "allocator": self.allocator,
            "plan": self.plan,
            "exit_code": exit_code,
            "iterations": [
                {**{key: each[key] for key in _TOLD}, **each["figures"]} for each in self.iterations
            ],
        }

    def _who(self) -> str:
        return f"rank {self.rank}, " if self.rank else ""


def reports_object(reports: Sequence[RunReport], exit_code: int) -> list[JsonObject]:
    """Give the reports of all ranks their JSON form, in order."""
    return [report.object(exit_code) for report in sorted(reports, key=lambda each: each.rank)]


def _line(iteration: Iteration) -> str:
    figures = iteration["figures"]
    reserved, allocated = figures["peak_reserved_bytes"], figures["peak_allocated_bytes"]
    text = (
        f"iteration {iteration['iteration']}: reserved {format_bytes(reserved)}, allocated"
        f" {format_bytes(allocated)}, utilization {format_share(allocated / max(reserved, 1))},"
        f" {format_duration(iteration['duration_ns'])}"
    )
    if "planned" not in figures:
        return text
    served = (
        f"{name} {figures[name]['requests']} ({format_bytes(figures[name]['bytes'])})"
        for name in _SERVED
    )
    return f"{text}; {', '.join(served)}"


def _strays(iteration: Iteration) -> bool:
    figures = iteration["figures"]
    return bool(figures["unmatched"]["requests"] > _STRAYS * figures["expected"])


def _deviation(iteration: Iteration) -> str:
    figures = iteration["figures"]
    requests = sum(figures[name]["requests"] for name in _SERVED)
    return (
        f"iteration {iteration['iteration']} differs from its plan:"
        f" {figures['unmatched']['requests']} of {requests} requests are not in it. They were"
        " served from idle space of the arena or by the caching allocator; every iteration is held"
        " against the plan anew, and this is said once."
    )
