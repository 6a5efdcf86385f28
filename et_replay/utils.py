"""Trace files in, the calls as a tree out: what Chakra's tools import from a package of this name.

mlc-chakra's trace linker takes its reader of files from here, and walks from node 1 down the
`children`. Names that are not ours (`get_nodes`, `parent_id`, `fw_parent_id`) are those it knows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from et_replay.errors import TraceError
from et_replay.execution_trace import ExecutionTrace, Node
from et_replay.formats import open_trace
from et_replay.formats.mending import mend
from et_replay.formats.source import read_source


class TreeNode:
    """A recorded call with its caller and the calls it made, in the order of their ids.

    It has every attribute of its `node` (`id`, `name`, `op_schema`, `rf_id`, `tid`, `inputs` ...),
    but `parent` is the calling TreeNode, None at a root; the id of that is `parent_id`.
    """

    __slots__ = ("children", "node", "parent")

    def __init__(self, node: Node, parent: TreeNode | None = None) -> None:
        self.node = node
        self.parent = parent
        self.children: list[TreeNode] = []
        if parent is not None:
            parent.children.append(self)

    def __getattr__(self, name: str) -> Any:
        if name in TreeNode.__slots__:  # not there yet: the object is being copied
            raise AttributeError(name)
        return getattr(self.node, name)

    def __repr__(self) -> str:
        return f"TreeNode(id={self.node.id}, name={self.node.name!r})"

    @property
    def parent_id(self) -> int:
        """The id of the caller, as recorded, whether that is in the file or not."""
        return self.node.parent

    @property
    def fw_parent_id(self) -> int:
        """The id of the forward call whose backward this is; 0 if it is none."""
        return self.node.fw_parent

    def is_op(self, detail: bool = False) -> bool:
        """Tell whether this is an operator that no other one calls; any operator for `detail`."""
        if not self.node.is_operator or detail:
            return self.node.is_operator
        above = self.parent
        while above is not None and not above.node.is_operator:
            above = above.parent
        return above is None


@dataclass(frozen=True, eq=False)
class TraceTree:
    """All calls of a trace by id; of several with one id, the first counts."""

    trace: ExecutionTrace
    nodes: Mapping[int, TreeNode]

    @property
    def schema(self) -> str:
        """The version that the file names; empty where it names none."""
        return self.trace.schema

    def get_nodes(self) -> Mapping[int, TreeNode]:
        """Return the calls by id; the process is call 1 in what PyTorch writes."""
        return self.nodes


def load_execution_trace_file(path: str | os.PathLike[str]) -> TraceTree:
    """Read an execution trace as a tree; raises TraceError where `open_trace` does."""
    trace = open_trace(path)
    tree: list[TreeNode] = []
    nodes: dict[int, TreeNode] = {}
    for position, parent in enumerate(trace.parents.tolist()):  # a parent comes before its children
        call = TreeNode(trace.node(position), tree[parent] if parent >= 0 else None)
        tree.append(call)
        nodes.setdefault(call.node.id, call)
    return TraceTree(trace, nodes)


def read_dictionary_from_json_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON object, such as a Kineto trace, plain or compressed.

    Raises TraceError where the file holds none.
    """
    source = read_source(path)
    mended = mend(source.text)
    if mended is None:
        raise TraceError(f"{source.name} is not a JSON object, such as a Kineto trace is.")
    return mended.fields
