"""The nodes of a window in, which operators are Python code that calls others out.

An operator on tensor subclasses (DTensor, jagged nested tensors) is carried out by Python code,
which calls operators on the tensors inside; the dispatcher's label for that is below it. The
tensors that it is given itself have no memory: a trace shows them in the storage of the null
pointer, which has an id like any other, and which all empty tensors share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from et_replay.execution_trace import Node, Value, tensors

_PYTHON = "PythonSubclass"


def run_by_python(nodes: Sequence[Node], last: Sequence[int]) -> frozenset[int]:
    """List the places of operators that do nothing but call those below them, if any.

    `last` has for each call the place of the last one below it.
    """
    labels = [i for i, node in enumerate(nodes) if node.name == _PYTHON]
    if not labels:
        return frozenset()

    def is_above_label(i: int) -> bool:
        k = bisect_right(labels, i)
        return k < len(labels) and labels[k] <= last[i]

    operators = [i for i, node in enumerate(nodes) if node.is_operator]
    found = {i for i in operators if is_above_label(i)}
    null = _null_storage(nodes, last, labels, found)
    if null:
        sights = ((i, (*nodes[i].inputs, *nodes[i].outputs)) for i in operators)
        found.update(i for i, values in sights if null in _storages(values))
    return frozenset(found)


def _null_storage(
    nodes: Sequence[Node], last: Sequence[int], labels: Sequence[int], found: set[int]
) -> int:
    """Find the storage id of tensors without memory; 0 if it cannot be told from others.

    Python is always given one of them, and what it calls is given none, though that may return one:
    `_c10d_functional::_wrap_tensor_autograd` makes what is to be waited for.
    """
    common = set.intersection(*(_storages(nodes[i].inputs) for i in labels))
    for label in labels:
        for i in range(label + 1, last[label] + 1):
            if nodes[i].is_operator and i not in found:
                common -= _storages(nodes[i].inputs)
    return common.pop() if len(common) == 1 else 0


def _storages(values: Iterable[Value]) -> set[int]:
    """List the storages of tensors that are not empty; 0 stands for none."""
    return {ref.storage_id for ref in tensors(values) if ref.numel} - {0}
