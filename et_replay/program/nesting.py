"""The nodes of a window in, when each call ended and which operator encloses it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from et_replay.execution_trace import ExecutionTrace, Node
from et_replay.program.subclasses import run_by_python
from et_replay.program.window import Window


@dataclass(frozen=True)
class Nesting:
    """The calls of a window; every list is indexed by the place of a node in the window.

    `last[i]` is the last call made below call i (i itself for a leaf): call i ends right after that
    one has. Ids tell only when a call began, so this is how its end is known. `operators[i]` says
    whether call i is an operator, and not just Python code that calls some (see subclasses.py).
    `enclosing[i]` is the innermost operator above call i, `outermost[i]` the outermost one, i
    itself included; -1 where there is none in the window.
    """

    nodes: list[Node]
    last: list[int]
    operators: list[bool]
    enclosing: list[int]
    outermost: list[int]

    def top_level(self) -> list[int]:
        """List the operators that no operator encloses."""
        return [i for i, outermost in enumerate(self.outermost) if outermost == i]

    def children(self, call: int) -> Iterator[int]:
        """Yield the operators directly below `call`; labels in between do not count."""
        i = call + 1
        while i <= self.last[call]:
            if self.enclosing[i] == call and self.operators[i]:
                yield i
                i = self.last[i] + 1
            else:
                i += 1


def nest(trace: ExecutionTrace, window: Window) -> Nesting:
    """Decode the nodes of `window` and work out their nesting."""
    begin, end = window.begin, window.end
    nodes = [trace.node(position) for position in range(begin, end)]
    parents = [p - begin for p in trace.parents[begin:end].tolist()]
    last = list(range(len(nodes)))
    for i in range(len(nodes) - 1, -1, -1):
        if parents[i] >= 0:
            last[parents[i]] = max(last[parents[i]], last[i])
    python = run_by_python(nodes, last)
    operators = [node.is_operator and i not in python for i, node in enumerate(nodes)]
    enclosing, outermost = [-1] * len(nodes), [-1] * len(nodes)
    for i, parent in enumerate(parents):
        if parent >= 0:
            enclosing[i] = parent if operators[parent] else enclosing[parent]
        above = enclosing[i]
        outermost[i] = outermost[above] if above >= 0 else i if operators[i] else -1
    return Nesting(nodes, last, operators, enclosing, outermost)
