"""A replay in, why its memory ran out or reached its peak, and what would fit, out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import MemoryHistory
from et_replay.explain import Explanation, Option, explain, find_way_out
from et_replay.explain.cases import cases_of
from et_replay.explain.explanation import Moment
from et_replay.program import Program, history_of_replay
from et_replay.serving import as_recorded

if TYPE_CHECKING:
    from et_replay.replay import ReplayResult

Reasons = tuple[Explanation | None, Sequence[Option]]


def reasons_of(program: Program, result: ReplayResult, moment: Moment) -> Reasons:
    """Explain a failure, or of a simulated device its peak where that is asked."""
    if result.at_failure is not None:
        return _reasons_measured(program, result, result.at_failure)
    if result.events is None or (result.out_of_memory is None and moment is Moment.FAILURE):
        return None, []
    capacity = result.device_memory - result.other_memory
    explanation = explain(
        history_of_replay(program, result.events, result.library_workspace),
        result.allocator,
        capacity,
        moment=moment,
        torch_version=result.imitated_version,
        plan=result.plan,
    )
    if result.out_of_memory is None:
        return explanation, []
    _name_operation(explanation, result.out_of_memory)
    return explanation, find_way_out(cases_of(program), capacity, result.imitated_version)


def _reasons_measured(program: Program, result: ReplayResult, history: MemoryHistory) -> Reasons:
    """Explain a real device's failure by simulating the one request that it could not serve."""
    failure, capacity = result.out_of_memory, history.device_memory
    assert failure is not None
    assert capacity is not None
    explanation = None
    with suppress(UsageError):  # a setting of a torch that is newer than the simulation
        explanation = explain(
            history,
            as_recorded(history),
            capacity,
            torch_version=history.torch_version,
            fraction=failure.limit / capacity if failure.limit < capacity else None,
        )
    _name_operation(explanation, failure)
    return explanation, find_way_out(cases_of(program), min(failure.limit, capacity))


def _name_operation(explanation: Explanation | None, failure: OutOfMemoryError) -> None:
    """Let an explanation name the operation that failed: its event names the call inside of it."""
    if explanation is not None and explanation.failure is not None:
        explanation.failure.node_id = failure.node_id
        explanation.failure.operator = failure.operator
