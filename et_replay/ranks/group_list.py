"""A trace in, the process groups that its `## process_group:init ##` nodes list out.

The node's input is the text of a JSON list, which older PyTorch cuts at 8192 characters:

    [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [],
      "group_size": 8, "group_count": 3}, ...]

No ranks are all `group_size` of them. Before PyTorch 2.4 a pointer, `backend_id`, is what calls
name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from et_replay.execution_trace import ExecutionTrace
from et_replay.program.communication import MOST_RANKS
from et_replay.units import counted

DEFAULT = "default_pg"
"""What PyTorch calls the group of all ranks."""
_INIT = "## process_group:init ##"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group of a list, by the names and pointers that calls may have for it.

    `ranks` is None for all of the `size` ranks.
    """

    names: frozenset[str]
    ranks: tuple[int, ...] | None
    size: int | None
    description: str
    backend: str


def listed_groups(trace: ExecutionTrace) -> tuple[list[ListedGroup], list[str]]:
    """Return the groups of a trace's lists, and in sentences what of them cannot be read."""
    entries, notes = [], []
    for position, name in enumerate(trace.names):
        if name != _INIT:
            continue
        node = trace.node(position)
        for text in (value for value in node.inputs if isinstance(value, str)):
            objects, whole = _objects(text)
            read = [entry for each in objects if (entry := _entry(each)) is not None]
            entries += read
            if not whole or len(read) < len(objects):
                notes.append(
                    f"The list of process groups in node {node.id} is damaged: "
                    f"{counted(len(read), 'group')} could be read of it."
                )
    return entries, notes


def _objects(text: str) -> tuple[list[Any], bool]:
    """Return the objects of a JSON list as far as it goes, and whether it is whole."""
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at, separators = text.find("{"), " \t\r\n,"
    while at >= 0 and text[at] == "{":
        try:
            each, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, False
        found.append(each)
        while at < len(text) and text[at] in separators:
            at += 1
        if at == len(text):
            return found, False
    return found, text.rstrip().endswith("]")


def _entry(recorded: Any) -> ListedGroup | None:
    ranks = recorded.get("ranks")
    if isinstance(ranks, dict):  # of global ranks to ranks of the group
        ranks = sorted(ranks, key=lambda each: (str(ranks[each]).zfill(9), each))
    if not isinstance(ranks, list):
        return None
    try:
        numbers = tuple(int(each) for each in ranks)
    except (TypeError, ValueError):
        return None
    if len(set(numbers)) < len(numbers) or any(not 0 <= each < MOST_RANKS for each in numbers):
        return None
    size = recorded.get("group_size")
    names = (recorded.get(key) for key in ("pg_name", "backend_id", "uid"))
    return ListedGroup(
        frozenset(str(name) for name in names if isinstance(name, str | int) and name != ""),
        numbers or None,
        size if isinstance(size, int) and 0 < size <= MOST_RANKS else len(numbers) or None,
        str(recorded.get("pg_desc", "")),
        str(recorded.get("backend_config", "")),
    )
