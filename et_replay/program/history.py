"""A program in, the memory history of a replay of it, or of the job itself, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from et_replay.events import AllocationEvents, MemoryHistory
from et_replay.origins import MemoryClass, Origin
from et_replay.program.allocations import allocation_events
from et_replay.program.classes import CLASS_RULE, origins
from et_replay.program.job import job_events, library_origins
from et_replay.program.program import Program
from et_replay.program.requests import RecordedRequests
from et_replay.program.schedule import Mode

JOB = "job"
"""The original job: from an empty allocator, with the memory that libraries take."""
_JOB_ITERATIONS = 3
"""After these the cache no longer grows in the jobs whose truth is known."""


def history_of(program: Program, mode: Mode | None) -> MemoryHistory:
    """Make the history of one iteration of a replay, or without a mode that of the job itself.

    It has no recorded addresses.
    """
    if mode is None:
        events, iterations = job_events(program, _JOB_ITERATIONS), _JOB_ITERATIONS
        makers = {**origins(program), **library_origins(program)}
    else:
        events, iterations = allocation_events(program, mode), 1
        makers = origins(program)
    names = [operation.node.name for operation in program.operations]
    return replace(_history(program, events, makers), operations=names * iterations)


def history_of_replay(program: Program, events: AllocationEvents, workspace: int) -> MemoryHistory:
    """Make the history of what a replay asked for; its last storage is the library workspace."""
    makers = origins(program)
    if workspace:
        makers[len(program.storages)] = Origin("library workspace", (), MemoryClass.LIBRARY)
    return _history(program, events, makers)


def history_of_requests(program: Program, requests: RecordedRequests) -> MemoryHistory:
    """Make the history of what a replay was seen to ask a real device for."""
    return _history(program, requests.events, {**origins(program), **requests.others})


def _history(
    program: Program, events: AllocationEvents, makers: Mapping[int, Origin]
) -> MemoryHistory:
    return MemoryHistory(
        source=program.trace.source,
        kind="execution trace",
        events=events,
        addresses=np.zeros(len(events), dtype=np.int64),
        notes=(*program.trace.notes, *program.notes),
        origins=makers,
        class_rule=CLASS_RULE,
    )
