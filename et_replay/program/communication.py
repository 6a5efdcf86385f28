"""A `record_param_comms` node in, what it says of a call of torch.distributed out.

The newest PyTorch writes all of these inputs; only the name is surely a string:

    [tensors], sequence, group, rank, name, in_splits, out_splits, [start, stride], size, [async]

`sequence` is a number, or a pair of it and whether the call is point to point; `group` a pointer,
a name, or a pair of a name and a description; `rank` the root or the peer where there is one, else
the caller's own, as ranks of the group; `start` and `stride` describe the group's global ranks, and
are -1 where they cannot. Attributes (from schema 1.1.0 on) say the same and go first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from et_replay.execution_trace import Node, TensorRef, Value

RECORD = "record_param_comms"
WAIT = "wait"
MOST_RANKS = 1 << 20
"""What is above counts no ranks."""
_YES, _NO = ("true", "1"), ("false", "0")


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded call: `name` is the backend's. What is not told is None, a text "".

    Splits are in rows of the first dimension, as torch.distributed takes them.
    """

    name: str
    sequence: int | None
    group_name: str
    group_description: str
    rank: int | None
    in_splits: tuple[int, ...]
    out_splits: tuple[int, ...]
    start: int | None
    stride: int | None
    size: int | None
    in_elements: int
    out_elements: int


def read_record(node: Node) -> Record | None:
    """Read a node; None where it is no such record, or names no call."""
    if node.name != RECORD:
        return None
    inputs, told = node.inputs, node.attributes
    at = max((k for k, value in enumerate(inputs) if isinstance(value, str)), default=-1)
    name = str(inputs[at]) if at >= 0 else told.get("collective_name")
    if not isinstance(name, str) or not name:
        return None
    leading = [value for value in inputs[: max(at, 0)] if not _holds_tensors(value)]
    if len(leading) == 2:  # the oldest have no group
        leading.insert(1, None)
    before: Sequence[Value] = (None, None, None, *leading)[-3:]
    after: Sequence[Value] = inputs[at + 1 :] if at >= 0 else ()
    numbers = [value for value in after if _is_integer(value)]
    placed = (None, None, *numbers)[-3:] if numbers else (None, None, None)
    group_name, description = _group(before[1])
    return Record(
        name=name,
        sequence=_sequence(before[0]),
        group_name=_text(told, "pg_name") or group_name,
        group_description=_text(told, "pg_desc") or description,
        rank=_known(before[2]),
        in_splits=_splits(told, "in_split_size") or _integers(after[:1]),
        out_splits=_splits(told, "out_split_size") or _integers(after[1:2]),
        start=_number(told, "global_rank_start", placed[0]),
        stride=_number(told, "global_rank_stride", placed[1]),
        size=_number(told, "pg_size", placed[2]),
        in_elements=_elements(told, "in_msg_nelems"),
        out_elements=_elements(told, "out_msg_nelems"),
    )


def sequence_number(node: Node) -> int | None:
    """Return the sequence number of a record: the first input that is no list of tensors."""
    for value in node.inputs[:2]:
        number = _sequence(value)
        if number is not None:
            return number
    return None


def is_asynchronous(nodes: Sequence[Node]) -> bool | None:
    """Read the attribute that says so; None where no node has it."""
    for node in nodes:
        text = str(node.attributes.get("is_asynchronized_op", "")).lower()
        if text in _YES or text in _NO:
            return text in _YES
    return None


def _holds_tensors(value: Value) -> bool:
    """Tell whether a value is tensors, or a list that may be but for it being empty."""
    if isinstance(value, tuple):
        return not value or isinstance(value[0], tuple | TensorRef)
    return isinstance(value, TensorRef)


def _sequence(value: Value) -> int | None:
    return _integer(value[0] if isinstance(value, tuple) and value else value)


def _group(value: Value) -> tuple[str, str]:
    """Return the name by which a record calls its group, and the description."""
    if isinstance(value, tuple):
        texts = [str(each) for each in value if isinstance(each, str | int)]
        name, description = (*texts, "", "")[:2]
        return name, description
    if isinstance(value, str):
        return value, ""
    return (str(value), "") if _is_integer(value) and value else ("", "")


def _text(attributes: Mapping[str, object], name: str) -> str:
    value = attributes.get(name)
    return value if isinstance(value, str) else ""


def _number(attributes: Mapping[str, object], name: str, otherwise: Value) -> int | None:
    value = attributes.get(name)
    return _known(value if isinstance(value, int) else otherwise)


def _elements(attributes: Mapping[str, object], name: str) -> int:
    value = attributes.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _splits(attributes: Mapping[str, object], name: str) -> tuple[int, ...]:
    """Read splits that are the text of a list; longer ones are cut by the observer, and left."""
    try:
        return msgspec.json.decode(_text(attributes, name), type=tuple[int, ...])
    except msgspec.DecodeError:
        return ()


def _integers(values: Sequence[Value]) -> tuple[int, ...]:
    value = values[0] if values else None
    if not isinstance(value, tuple):
        return ()
    numbers = tuple(each for each in value if isinstance(each, int))
    return numbers if len(numbers) == len(value) else ()


def _is_integer(value: Value) -> bool:
    return _integer(value) is not None


def _integer(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _known(value: Value) -> int | None:
    """Return a rank, or a count of ranks, if it is one."""
    number = _integer(value)
    return number if number is not None and 0 <= number <= MOST_RANKS else None
