"""Results in, the one JSON object out that every command writes; keys end with their unit."""

from __future__ import annotations

import json
from collections.abc import Sequence

from et_replay import __version__

JsonObject = dict[str, object]


def document(command: str, results: Sequence[JsonObject]) -> str:
    """Write the results of `command`, one a row of its table, as JSON text that ends its line."""
    content = {"et_replay": __version__, "command": command, "results": results}
    return json.dumps(content, indent=2) + "\n"
