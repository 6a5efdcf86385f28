"""A trace in, the global rank of the process that wrote it out, where that can be told."""

from __future__ import annotations

from et_replay.execution_trace import ExecutionTrace
from et_replay.program.communication import RECORD, WAIT, Record, read_record
from et_replay.ranks.group_list import ListedGroup, listed_groups
from et_replay.ranks.kinds import RECEIVE, ROOTED, SEND, kind_of

_OF_ANOTHER_RANK = ROOTED | {SEND, RECEIVE, WAIT, ""}
"""Kinds of which a record holds the root or the peer in the place of the rank."""


_MAKING = "init"
"""What PyTorch before 2.0 records when a group is made."""


def told_rank(trace: ExecutionTrace) -> int | None:
    """Return the rank that is in all groups which the trace lists, or that a call names."""
    listed, _ = listed_groups(trace)
    members = [set(group.ranks) for group in listed if group.ranks is not None]
    common = set.intersection(*members) if members else set()
    if len(common) == 1:
        return common.pop()
    for position, name in enumerate(trace.names):
        if name == RECORD:
            record = read_record(trace.node(position))
            rank = None if record is None else _global_rank(record, listed)
            if rank is not None:
                return rank
    return None


def _global_rank(record: Record, listed: list[ListedGroup]) -> int | None:
    tells = record.name == _MAKING or kind_of(record.name) not in _OF_ANOTHER_RANK
    if record.rank is None or not tells:
        return None
    if record.start is not None and record.stride:
        return record.start + record.rank * record.stride
    group = next((group for group in listed if record.group_name in group.names), None)
    if group is None:
        return None
    if group.ranks is None:
        return record.rank
    return group.ranks[record.rank] if record.rank < len(group.ranks) else None
