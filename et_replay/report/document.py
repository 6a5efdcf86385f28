"""Results in, the one JSON object out that every command writes; keys end with their unit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from et_replay import __version__
from et_replay.errors import OutOfMemoryError
from et_replay.origins import MemoryClass

JsonObject = dict[str, object]


def failure_object(failure: OutOfMemoryError) -> JsonObject:
    """Give the figures of a request that did not fit their JSON form."""
    return {
        "message": str(failure),
        "node_id": failure.node_id,
        "operator": failure.operator,
        "requested_bytes": failure.requested,
        "capacity_bytes": failure.limit,
        "allocated_bytes": failure.allocated,
        "reserved_bytes": failure.reserved,
        "largest_free_bytes": failure.largest_free,
    }


def classes_object(classes: Mapping[MemoryClass, int]) -> list[JsonObject]:
    """Give the bytes of each class of memory their JSON form."""
    return [{"class": kind.value, "bytes": size} for kind, size in classes.items()]


def document(command: str, results: Sequence[JsonObject]) -> str:
    """Write the results of `command`, one a row of its table, as JSON text that ends its line."""
    content = {"et_replay": __version__, "command": command, "results": results}
    return json.dumps(content, indent=2) + "\n"
