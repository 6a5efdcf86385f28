"""Collectives: which recorded calls communicate, so that they need a process group to run."""

from __future__ import annotations

from et_replay.execution_trace import Node

_NAMESPACES = ("c10d::", "_c10d_functional::", "c10d_functional::", "_dtensor::")


def is_collective(node: Node) -> bool:
    """Tell whether `node` is a call of torch.distributed, in any form that traces hold."""
    return node.name == "record_param_comms" or node.name.startswith(_NAMESPACES)
