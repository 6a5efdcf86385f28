"""The nodes of a window in, sentences about what of them is damaged out."""

from __future__ import annotations

from collections.abc import Sequence

from et_replay.execution_trace import DAMAGED, Node, damaged
from et_replay.units import counted


def damage_notes(nodes: Sequence[Node]) -> list[str]:
    """Say how many values have lost their form, and how many operators their schema."""
    notes = []
    values = [(node, value) for node in nodes for value in damaged((node.inputs, node.outputs))]
    if values:
        node, first = values[0]
        what = "value is damaged and counts", "values are damaged and count"
        notes.append(
            f"{counted(len(values), *what)} as unknown"
            f" (first: {first.kind.removeprefix(DAMAGED)} in node {node.id}, {node.name})."
        )
    lacking = [node for node in nodes if node.lacks_schema]
    if lacking:
        what = "node has lost its schema and counts", "nodes have lost their schemas and count"
        notes.append(
            f"{counted(len(lacking), *what)} as no operator"
            f" (first: node {lacking[0].id}, {lacking[0].name})."
        )
    return notes
