"""`et_replay` on a memory history: its requests served again, its failure reproduced."""

from __future__ import annotations

import argparse

from et_replay.commands.options import FOR_TRACES, meaningless
from et_replay.commands.output import warn, write_result
from et_replay.commands.pages import maps_of, write_page
from et_replay.comparison import Comparison, compare, version_to_imitate
from et_replay.errors import OutOfMemoryError, TraceError, UsageError
from et_replay.events import MemoryHistory
from et_replay.explain import Case, Explanation, explain, find_way_out
from et_replay.explain.explanation import Moment
from et_replay.planning import Plan, check_plan, lifetimes, read_plan
from et_replay.report.document import document
from et_replay.report.history import HistoryReport, history_object, history_text
from et_replay.serving import (
    as_recorded,
    capacity_for,
    left_for_torch,
    share_of,
    with_known_settings,
)
from et_replay.simulation import PLANNED, allocator_name, usable_bytes

_FOR_TRACES = (
    *("tensor_allocation_mode", "device", "device_memory_threshold", "library_workspace"),
    *("window", "subgraph", "node", "imports", "config", "operator_times", "run_kernels"),
    *("warmup", "iterations", "seed", "on_unsupported", "replay_mode", "allow_other_world_size"),
    "collective_timeout",
)
"""Where the options are kept that mean nothing without operators."""


def replay_history(
    history: MemoryHistory, arguments: argparse.Namespace, version: str | None = None
) -> int:
    """Serve a recorded history again, and explain its failure, or the peak where that is asked.

    `version` is whose allocator to imitate, by default what the history tells.
    """
    _refuse_files(arguments)
    history = with_known_settings(history, version)
    warn(history.notes, arguments.quiet)
    if not len(history.events) and not history.segments:
        raise TraceError(f"{history.source} holds no allocation, so there is nothing to replay.")
    allocator = arguments.allocator or as_recorded(history)
    fraction = share_of(history, arguments.memory_fraction, arguments.device_memory)
    _, version = version_to_imitate(history, version, arguments.device_memory, fraction)
    device_memory = capacity_for(history, arguments.device_memory)
    capacity = left_for_torch(device_memory, arguments.other_memory)
    limit = usable_bytes(capacity, fraction)
    served = compare(
        history,
        allocator,
        torch_version=version,
        device_memory=capacity,
        plan=_plan(history, allocator, arguments),
        fraction=fraction,
    )
    warn(meaningless(arguments, _FOR_TRACES, FOR_TRACES), arguments.quiet)
    failure, explanation = _explanations(history, served, capacity, fraction, arguments.explain)
    report = HistoryReport(
        history=history,
        served=served,
        device_memory=device_memory,
        proven=arguments.device_memory is None and history.device_memory is not None,
        other_memory=arguments.other_memory,
        memory_fraction=fraction,
        failure=failure,
        explanation=explanation,
        options=() if failure is None else find_way_out([Case("", history)], limit, version),
    )
    return _write(report, capacity, arguments)


def _write(report: HistoryReport, capacity: int, arguments: argparse.Namespace) -> int:
    """Write what came of it; return the exit code."""
    served = report.served
    if arguments.page:
        names = tuple(dict.fromkeys((served.allocator, "expandable", PLANNED)))
        version, plan, fraction = served.torch_version, served.plan, report.memory_fraction
        maps = maps_of(report.history, names, capacity, version, plan, fraction)
        write_page(maps, arguments.page, arguments.force)
    write_result(
        history_text(report, arguments.verbose),
        document("replay", [history_object(report)]),
        arguments.json,
        arguments.force,
    )
    return 0 if report.failure is None else OutOfMemoryError.exit_code


def _refuse_files(arguments: argparse.Namespace) -> None:
    """Refuse to promise files that come of operators alone."""
    given = {
        "--update-config": arguments.update_config,
        "--profile": arguments.profile,
        "--execution-trace": arguments.execution_trace,
        "--dump": arguments.dump,
    }
    for flag, path in given.items():
        if path is not None:
            raise UsageError(f"{flag} is for execution traces: a memory history has no operators.")


def _plan(history: MemoryHistory, allocator: str, arguments: argparse.Namespace) -> Plan | None:
    """Read the plan that stalloc is to serve, which must have been made for this history."""
    if arguments.plan is None:
        return None
    if allocator_name(allocator) != PLANNED:
        raise UsageError("--plan needs --allocator stalloc.")
    plan = read_plan(arguments.plan)
    check_plan(plan, lifetimes(history.events, history.segments), history.source)
    return plan


def _explanations(
    history: MemoryHistory, served: Comparison, capacity: int, fraction: float | None, asked: str
) -> tuple[Explanation | None, Explanation | None]:
    """Explain the failure, if there is one, and what is asked for."""
    explanation = _explained(history, served, capacity, fraction, Moment.FAILURE)
    failed = explanation is not None and explanation.failure is not None
    failure = explanation if failed else None
    if asked == Moment.PEAK.value:
        explanation = _explained(history, served, capacity, fraction, Moment.PEAK)
    return failure, explanation


def _explained(
    history: MemoryHistory,
    served: Comparison,
    capacity: int,
    fraction: float | None,
    moment: Moment,
) -> Explanation | None:
    if served.undefined:
        return None
    return explain(
        history,
        served.allocator,
        capacity,
        moment=moment,
        torch_version=served.torch_version,
        plan=served.plan,
        fraction=fraction,
    )
