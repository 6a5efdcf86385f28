"""Memory snapshots by hand, in the layout of each torch version."""

from __future__ import annotations

import pickle
from typing import Any

MIB = 1 << 20


def block(size: int, state: str = "active_allocated", requested: int | None = None) -> dict:
    """A block; its address is filled in by `segment`."""
    return {"size": size, "requested_size": requested or size, "state": state}


def segment(address: int, *blocks: dict, addresses: bool = True, **others: Any) -> dict:
    """A segment that its blocks fill; without `addresses`, as torch 2.0 writes it."""
    position, placed = address, []
    for each in blocks:
        placed.append({**({"address": position} if addresses else {}), **each})
        position += each["size"]
    size = position - address
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "small" if size == 2 * MIB else "large",
        "blocks": placed,
        **others,
    }


def entry(action: str, address: int, size: int, stream: int = 0, **others: Any) -> dict:
    where = "device_free" if action == "oom" else "addr"
    return {"action": action, where: address, "size": size, "stream": stream, **others}


def freed(address: int, size: int, stream: int = 0) -> list[dict]:
    """A free that completes at once."""
    return [
        entry("free_requested", address, size, stream),
        entry("free_completed", address, size, stream),
    ]


def snapshot(segments: list[dict], *traces: list[dict], **others: Any) -> dict:
    return {"segments": segments, "device_traces": list(traces), **others}


def pickled(content: object, protocol: int = 4) -> bytes:
    return pickle.dumps(content, protocol)
