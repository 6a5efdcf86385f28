"""A program in, the annotations around each operation and the pass that it belongs to out."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from et_replay.execution_trace import ExecutionTrace, Node
from et_replay.program.nesting import nest
from et_replay.program.part import places_in_whole
from et_replay.program.program import Program
from et_replay.program.window import is_annotation

_BACKWARD = "autograd::engine::evaluate_function: "
_OPTIMIZER = "Optimizer.step#"
_ZERO_GRAD = "Optimizer.zero_grad#"
_OPTIMIZER_CALLS = ("aten::_foreach_", "aten::_fused_")


class Pass(enum.Enum):
    """The parts of a training step."""

    FORWARD = "forward"
    """All that is in no other pass, with a backward pass to come; without any, everything."""
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    BETWEEN = "between"
    """Zeroing gradients, and what follows the last backward operation, such as clipping them."""


def enclosing_annotations(program: Program) -> list[tuple[str, ...]]:
    """Name what encloses each operation, the outermost first: marks, labels of autograd."""
    if program.whole is not None:
        of_whole = enclosing_annotations(program.whole)
        return [of_whole[k] for k in places_in_whole(program)]
    trace, begin = program.trace, program.window.begin
    top_level = nest(trace, program.window).top_level()
    known: dict[int, tuple[str, ...]] = {-1: ()}
    return [_above(trace, int(trace.parents[begin + i]), known) for i in top_level]


def passes(program: Program, within: Sequence[tuple[str, ...]]) -> list[Pass]:
    """Tell the pass of each operation, which stands below the annotations `within` names."""
    nodes = [operation.node for operation in program.operations]
    backward = _backward(nodes, within)
    last_backward = max((k for k, is_backward in enumerate(backward) if is_backward), default=-1)
    optimizer = _optimizer(nodes, within, last_backward)
    found = []
    for k, names in enumerate(within):
        if optimizer[k]:
            found.append(Pass.OPTIMIZER)
        elif backward[k]:
            found.append(Pass.BACKWARD)
        elif k > last_backward >= 0 or any(name.startswith(_ZERO_GRAD) for name in names):
            found.append(Pass.BETWEEN)
        else:
            found.append(Pass.FORWARD)
    return found


def _above(
    trace: ExecutionTrace, position: int, known: dict[int, tuple[str, ...]]
) -> tuple[str, ...]:
    pending = []
    while position not in known:
        pending.append(position)
        position = int(trace.parents[position])
    names = known[position]
    for each in reversed(pending):
        if is_annotation(trace, each):
            names = (*names, trace.names[each])
        known[each] = names
    return names


def _backward(nodes: Sequence[Node], within: Sequence[tuple[str, ...]]) -> list[bool]:
    """Find the operations of the backward pass.

    On accelerators autograd runs it on threads of its own. Hooks on these, such as those of
    DistributedDataParallel, have no autograd node above them.
    """
    below = [any(name.startswith(_BACKWARD) for name in names) for names in within]
    threads = {node.tid for node, is_below in zip(nodes, below, strict=True) if is_below}
    own = {node.tid for node in nodes[:1]}
    return [
        is_below or node.tid in threads - own for node, is_below in zip(nodes, below, strict=True)
    ]


def _optimizer(
    nodes: Sequence[Node], within: Sequence[tuple[str, ...]], last_backward: int
) -> list[bool]:
    annotated = [any(name.startswith(_OPTIMIZER) for name in names) for names in within]
    if any(annotated) or last_backward < 0:
        return annotated
    return [
        k > last_backward and node.name.startswith(_OPTIMIZER_CALLS) for k, node in enumerate(nodes)
    ]
