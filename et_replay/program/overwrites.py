"""A call of a compiled graph in, the tensors that it writes whole without reading them out."""

from __future__ import annotations

from collections.abc import Callable

from et_replay.execution_trace import ExecutionTrace, Node, tensors
from et_replay.formats.kernel_text import KernelText, KernelTexts, flat_indices
from et_replay.program.window import Window

_GRAPH = "## Call CompiledFxGraph "

Overwrites = Callable[[int, Node], "frozenset[int] | None"]
"""Tells which of its flat inputs the call at a place of a window overwrites; None if unknown."""


def find_overwrites(trace: ExecutionTrace, window: Window) -> Overwrites:
    """Make the test for the calls of `window`.

    Of a generated kernel its source tells, where that was saved beside the trace. An operator that
    a compiled graph calls gets its results as `out`.
    """
    texts = KernelTexts(trace.source)
    unread: dict[KernelText, frozenset[int]] = {}

    def overwrites(i: int, node: Node) -> frozenset[int] | None:
        if not node.is_kernel:
            parent = int(trace.parents[window.begin + i])
            in_graph = parent >= 0 and trace.names[parent].startswith(_GRAPH)
            return _results(node) if in_graph else None
        text = texts.of(node)
        if text is None:
            return None
        if text not in unread:
            unread[text] = text.written_unread()
        return frozenset(flat_indices(node, unread[text]))

    return overwrites


def _results(node: Node) -> frozenset[int] | None:
    """List the arguments of an operator that its schema marks as `out`: the last ones."""
    arguments = node.op_schema.partition("->")[0]
    if "!) out" not in arguments:
        return None
    count = sum(1 for _ in tensors(node.inputs))
    return frozenset(range(max(count - arguments.count("!) "), 0), count))
