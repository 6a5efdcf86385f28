"""A trace in, the nodes of each call of torch.distributed out.

A call is recorded in several forms, one below the other:

    _c10d_functional_autograd::all_reduce   what a compiled or DTensor job calls
      _c10d_functional::all_reduce          the same without a gradient
        c10d::allreduce_                    the call on a process group
          record_param_comms                what the backend does; gloo writes none

They are one call, which the outermost node stands for. gloo ends its labels in other threads, which
leaves some nodes below a call that they are no part of: such a node repeats a form that the call
has already, or is of another kind, and so is a call itself. What NCCL records of the parts of one
call, such as the broadcasts of an uneven all_gather, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from et_replay.execution_trace import ExecutionTrace, Node
from et_replay.program.communication import RECORD, WAIT, Record, read_record
from et_replay.ranks.kinds import depth_of, family_of, kind_of


@dataclass(slots=True)
class RecordedCall:
    """One call: its nodes from the outermost on, and what the backend recorded of it.

    `part` is the record of a part of it where there is none of the call itself.
    """

    position: int
    kind: str
    depth: int
    nodes: list[Node] = field(default_factory=list)
    record: Record | None = None
    part: Record | None = None

    def takes(self, kind: str, depth: int) -> bool:
        """Tell whether a node below it is a further form of it."""
        outermost_is_dtensor = self.depth == 0
        same = family_of(kind) == family_of(self.kind) or (outermost_is_dtensor and kind != WAIT)
        return same and depth > self.depth

    def take(self, node: Node, kind: str, depth: int, record: Record | None) -> None:
        """Add a further form of it."""
        if self.depth == 0:
            self.kind = kind
        self.nodes.append(node)
        self.depth = depth
        self.record = record or self.record

    @property
    def on_group(self) -> Node:
        """The node that has all arguments: the call on a process group if there is one."""
        named = [node for node in self.nodes if node.name.startswith("c10d::")]
        return (named or [node for node in self.nodes if node.name != RECORD] or self.nodes)[0]


def recorded_calls(trace: ExecutionTrace) -> list[RecordedCall]:
    """List the calls, waits too, in the order in which they began."""
    calls: list[RecordedCall] = []
    owners: dict[int, RecordedCall] = {}
    depths = {name: depth_of(name) for name in set(trace.names)}
    for position, name in enumerate(trace.names):
        depth = depths[name]
        if depth < 0:
            continue
        node = trace.node(position)
        record = read_record(node)
        kind = kind_of(record.name if record else name)
        if not kind:
            continue
        above = _owner(trace, position, owners)
        if above is not None and above.takes(kind, depth):
            above.take(node, kind, depth, record)
        elif above is None or name != RECORD or kind == WAIT:
            above = RecordedCall(position, kind, depth, [node], record)
            calls.append(above)
        elif above.record is None:
            above.part = record
        owners[position] = above
    return calls


def _owner(
    trace: ExecutionTrace, position: int, owners: dict[int, RecordedCall]
) -> RecordedCall | None:
    """Find the call that the innermost node above `position` is of, if there is one."""
    above = int(trace.parents[position])
    while above >= 0 and above not in owners:
        above = int(trace.parents[above])
    return owners.get(above)
