"""What was repaired or left out on reading, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from et_replay.formats.mending import ENCODING, FIELD, NAME, NUMBER
from et_replay.formats.source import BREAKS_OFF
from et_replay.units import counted

_KNOWN_SCHEMAS = frozenset(
    {
        "1.0.1",
        "1.0.2-chakra.0.0.4",
        "1.0.3-chakra.0.0.4",
        "1.0.4-chakra.0.0.4",
        "1.1.0-chakra.0.0.4",
        "1.1.1-chakra.0.0.4",
        "1.1.1-chakra.1.0.0",
    }
)

_SHOWN = 5
_REPAIRS = {
    NAME: "Repaired names with quotes, backslashes or control characters that were not escaped",
    NUMBER: "Repaired values that JSON does not allow, such as a bare nan",
    ENCODING: "Replaced bytes that are not UTF-8 by U+FFFD",
    FIELD: "Read in spite of an id, a name or a parent of an unexpected type",
}


def breaks_off(nodes: int, ignored: int) -> str:
    """Say that a file has no end."""
    tail = f", and its last {counted(ignored, 'byte')} ignored" if ignored else ""
    return f"The file {BREAKS_OFF}: {counted(nodes, 'complete node')} of it could be read{tail}."


def goes_on(ignored: int) -> str:
    """Say that a file has more than a trace in it."""
    return f"What follows the end of the trace was ignored ({counted(ignored, 'byte')})."


def unknown_schema(schema: object) -> list[str]:
    """Say that the version is not one that was seen before, if so; the structure decided."""
    if schema is None:
        return ["The file names no schema; it was read by its structure."]
    if isinstance(schema, str) and schema in _KNOWN_SCHEMAS:
        return []
    return [f"The schema {schema!r} is not a known one; the file was read by its structure."]


def crossed(mended: int, workers: int) -> list[str]:
    """Say what gloo's threads did to a trace: parents that are mended, nodes that are left out."""
    found = []
    if mended:
        found.append(
            f"The parents of {counted(mended, 'node')} were read from the order of the file: gloo's"
            " work, which ends on threads of its own, had PyTorch's observer record wrong ones."
        )
    if workers:
        found.append(
            f"{counted(workers, 'node')} left out: what gloo's own threads ran as part of"
            " collectives."
        )
    return found


def of_chakra(kinds: Mapping[str, int], operators: int) -> tuple[str, ...]:
    """Say what a protobuf file lacks: nodes by kind, and how many name an operator, go in."""
    if operators:
        return (
            "Chakra's protobuf form has neither strides nor what generated kernels and collectives "
            "need; the JSON file that it was made from tells more.",
        )
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (f"No node names an operator of PyTorch, so none can be replayed ({counts or 'none'}).",)


def repaired(repairs: Mapping[str, Sequence[int]]) -> list[str]:
    """Say, for each kind of repair, which nodes needed it."""
    return [f"{_REPAIRS[kind]}: {_nodes(ids)}." for kind, ids in repairs.items()]


def lost(texts: Sequence[tuple[int | None, int]]) -> list[str]:
    """Say what no node came of: pairs of the node's id, if that could be read, and of bytes."""
    if not texts:
        return []
    ids = [node_id for node_id, _ in texts if node_id is not None]
    size = counted(sum(size for _, size in texts), "byte")
    which = f", {_nodes(ids)}" if ids else ""
    pieces = counted(len(texts), "unreadable piece")
    return [f"Left out: {pieces} between the nodes ({size}{which})."]


def repeated(count: int) -> list[str]:
    """Say how many nodes have the id of another one."""
    return [f"{counted(count, 'node')} with the id of another one, kept apart."] if count else []


def orphaned(operators: Sequence[int]) -> list[str]:
    """Say which operators name a parent that is not there."""
    if not operators:
        return []
    one = len(operators) == 1
    what = f"{counted(len(operators), 'operator')} {'names' if one else 'name'} a parent"
    root = "it counts as called from its" if one else "they count as called from their"
    lack = "that is not in the file before it"
    return [f"{what} {lack} (first: node {operators[0]}); {root} thread's root."]


def _nodes(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN]))
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"{'node' if len(ids) == 1 else 'nodes'} {shown}{more}"
