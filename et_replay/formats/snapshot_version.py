"""The oldest torch that can have written a memory snapshot, told by what stands in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# newest first; each is a key that the version brought, where it stands, as far as is known
_KEYS = (
    ("2.14", "top", "host_traces"),
    ("2.14", "settings", "max_round_threshold"),
    ("2.12", "entry", "pool_id"),
    ("2.9", "entry", "user_metadata"),
    ("2.9", "settings", "graph_capture_record_stream_reuse"),
    ("2.6", "entry", "compile_context"),
    ("2.5", "top", "external_annotations"),
    ("2.3", "top", "allocator_settings"),
    ("2.2", "entry", "time_us"),
    ("2.1", "segment", "segment_pool_id"),
)


def oldest_version(content: dict[Any, Any]) -> str:
    """Return the version, such as 2.9; "" for those before 2.1."""
    keys: dict[str, set[str]] = {
        "top": set(content),
        "settings": set(content.get("allocator_settings") or ()),
        "segment": {key for segment in (content.get("segments") or [])[:1] for key in segment},
        "entry": set(_entry_keys(content.get("device_traces") or [])),
    }
    for version, place, key in _KEYS:
        if key in keys[place]:
            return version
    return ""


def _entry_keys(traces: list[list[dict[str, Any]]]) -> Iterator[str]:
    for trace in traces:
        for entry in trace[:1]:
            yield from entry
            if entry.get("action") == "annotate":
                yield "pool_id"
