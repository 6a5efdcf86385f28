"""Prepared operations that have run in, what became of them and why out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from et_replay.program.collectives import is_wait
from et_replay.program.program import Program
from et_replay.replay.prepared import PreparedOperation
from et_replay.replay.result import Coverage, Outcome, Reason, Unexecuted


def coverage_of(
    program: Program, all_operations: Sequence[PreparedOperation], reached: int
) -> Coverage:
    """Count each operation of `program` once; those from number `reached` on have never run."""
    operations = all_operations[:reached]
    outcomes = Counter(operation.outcome for operation in operations)
    reasons = Counter(
        (operation.name, operation.outcome, reason, operation.configured)
        for operation in operations
        for reason in operation.reasons
    )
    return Coverage(
        executed=outcomes[Outcome.EXECUTED],
        substituted=outcomes[Outcome.SUBSTITUTED],
        skipped=outcomes[Outcome.SKIPPED],
        reasons=[
            Reason(name, count, outcome, reason, configured)
            for (name, outcome, reason, configured), count in reasons.most_common()
        ],
        not_reached=len(all_operations) - reached,
        collectives=sum(
            operation.node.is_collective
            and not is_wait(operation.node)
            and prepared.outcome is not Outcome.EXECUTED
            for operation, prepared in zip(program.operations[:reached], operations, strict=True)
        ),
        unexecuted=_unexecuted(operations, all_operations),
    )


def _unexecuted(
    operations: Sequence[PreparedOperation], all_operations: Sequence[PreparedOperation]
) -> list[Unexecuted]:
    """List by name and reason what did not run, but for what the configuration leaves out."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for operation in operations:
        if operation.outcome is not Outcome.EXECUTED and not operation.configured:
            places[operation.name, "; ".join(operation.reasons)].append(operation.node_id)
    total = Counter(operation.name for operation in all_operations)
    return [
        Unexecuted(name, reason, tuple(node_ids), len(node_ids) == total[name])
        for (name, reason), node_ids in places.items()
    ]
