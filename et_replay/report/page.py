"""Memory maps in, one HTML page that needs nothing else out.

The page is page/page.html with its style, its script and the data put in. Columns travel as base64
of little-endian arrays. Addresses become heights: what was never reserved is taken out of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from importlib import resources

import numpy as np

from et_replay import __version__
from et_replay.errors import OutOfMemoryError
from et_replay.events import Int64Array, MemoryHistory
from et_replay.memory_map import MemoryMap
from et_replay.origins import MemoryClass, Origin
from et_replay.report.document import JsonObject, failure_object
from et_replay.report.heights import Heights

_FOLDER = resources.files("et_replay.report") / "page"
_UNKNOWN = Origin("not recorded")
_CLASSES = list(MemoryClass)
_WITHIN = " > "
_LONGEST = 300
"""Characters of a name; a page with a million blocks shall not be made of names."""
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
"""Of the characters that could end the element which holds the data, or mean something in it."""


def page(maps: Sequence[MemoryMap]) -> str:
    """Write the page for maps of one history, one tab each."""
    data = json.dumps(page_object(maps), separators=(",", ":")).translate(_ESCAPES)
    text = (_FOLDER / "page.html").read_text(encoding="utf-8")
    for name, part in (("css", _part("page.css")), ("js", _part("page.js")), ("data", data)):
        before, _, after = text.partition(f"/*{name}*/")
        text = f"{before}{part}{after}"
    return text


def page_object(maps: Sequence[MemoryMap]) -> JsonObject:
    """Give the maps the form in which the page holds them; see page/README.md."""
    history = maps[0].history
    origins = _Origins(history)
    return {
        "et_replay": __version__,
        "input": history.source,
        "kind": history.kind if len(history.events) else f"{history.kind}, a state without events",
        "rows": max(1, len(history.events)),
        "steps": _steps(history),
        "classes": [kind.value for kind in _CLASSES],
        "class_rule": history.class_rule,
        "maps": [_map_object(each, origins) for each in maps],
        "origins": origins.table(),
    }


class _Origins:
    """Numbers different origins; 0 is that of storages of which none is known."""

    def __init__(self, history: MemoryHistory) -> None:
        self._numbers: dict[Origin, int] = {_UNKNOWN: 0}
        count = max(history.origins, default=-1) + 1
        self._of_storage = np.zeros(count, dtype=np.int64)
        for storage, origin in history.origins.items():
            self._of_storage[storage] = self._numbers.setdefault(origin, len(self._numbers))

    def of(self, storages: Int64Array) -> Int64Array:
        """Return the number of the origin of each storage."""
        numbers: Int64Array = np.zeros(len(storages), dtype=np.int64)
        known = storages < len(self._of_storage)
        numbers[known] = self._of_storage[storages[known]]
        return numbers

    def table(self) -> JsonObject:
        """Return the origins by number, as columns."""
        return {
            "maker": [origin.maker[:_LONGEST] for origin in self._numbers],
            "within": [_WITHIN.join(origin.within)[:_LONGEST] for origin in self._numbers],
            "class": _u8(_CLASSES.index(origin.memory_class) for origin in self._numbers),
        }


def _part(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _steps(history: MemoryHistory) -> JsonObject:
    names = history.operations[: max(0, len(history.events.steps) - 1)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return {
        "row": _i32(history.events.steps[: len(names)]),
        "name": _i32(np.array([numbers[name] for name in names], dtype=np.int64)),
        "names": [name[:_LONGEST] for name in numbers],
    }


def _map_object(each: MemoryMap, origins: _Origins) -> JsonObject:
    heights = Heights(each.segments)
    blocks, segments = each.blocks, each.segments
    return {
        "allocator": each.allocator,
        "torch_version": each.torch_version,
        "capacity_bytes": each.capacity,
        "peak_allocated_bytes": each.peak_allocated,
        "peak_reserved_bytes": each.peak_reserved,
        "peak_row": each.peak_row,
        "failures": [_failure(each, failure) for failure in each.failures],
        "allocated": _f64(_shown(each.timeline.allocated, each.peak_allocated)),
        "reserved": _f64(_shown(each.timeline.reserved, each.peak_reserved)),
        "blocks": {
            "start": _i32(blocks.start),
            "end": _i32(np.maximum(blocks.end, 1)),
            "y": _f64(heights.of(blocks.address)),
            "size": _f64(blocks.size),
            "requested": _f64(blocks.requested),
            "origin": _i32(origins.of(blocks.storage)),
        },
        "segments": {
            "start": _i32(segments.start),
            "end": _i32(np.maximum(segments.end, 1)),
            "y": _f64(heights.of(segments.address)),
            "size": _f64(segments.size),
            "stream": _f64(segments.stream),
            "pool": _i32(segments.pool),
        },
        "ranges": _ranges(heights),
    }


def _shown(column: Int64Array, held: int) -> Int64Array:
    """Return the column; of a state without events a single moment, at which that much is held."""
    return column if len(column) else np.array([held])


def _failure(each: MemoryMap, failure: OutOfMemoryError) -> JsonObject:
    """Add who asked to the message, or that this is not known."""
    storage = -1 if failure.event is None else int(each.history.events.storage[failure.event])
    origin = each.history.origins.get(storage)
    asked = "The file does not tell who asked." if origin is None else f"By {origin.maker}."
    message = f"{failure} {asked}"[: 2 * _LONGEST]
    return {**failure_object(failure), "row": failure.event, "message": message}


def _ranges(heights: Heights) -> JsonObject:
    """Return the ranges, from which heights become addresses again."""
    return {"y": _f64(heights.y), "address": _f64(heights.address), "size": _f64(heights.size)}


def _i32(values: Int64Array) -> str:
    return _base64(values.astype("<i4"))


def _f64(values: Int64Array) -> str:
    return _base64(values.astype("<f8"))


def _u8(values: Iterable[int]) -> str:
    return base64.b64encode(bytes(values)).decode()


def _base64(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
    return base64.b64encode(values.tobytes()).decode()
