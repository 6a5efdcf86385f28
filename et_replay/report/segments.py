"""Segments in, a small picture of each out: what of it is used, and what is free."""

from __future__ import annotations

from collections.abc import Sequence

from et_replay.events import DEFAULT_POOL, SegmentState
from et_replay.report.table import table
from et_replay.units import format_bytes

_COLUMNS = 48
_FREE, _PARTLY, _USED = "·", "▒", "█"
_SHOWN = 60


def segments_text(segments: Sequence[SegmentState]) -> str:
    """Draw the segments, the largest first."""
    ordered = sorted(segments, key=lambda segment: (-segment.size, segment.address))
    rows = [
        (
            hex(segment.address),
            format_bytes(segment.size),
            format_bytes(_used(segment)),
            _kind(segment),
            _picture(segment),
        )
        for segment in ordered[:_SHOWN]
    ]
    if others := ordered[_SHOWN:]:
        size = sum(segment.size for segment in others)
        used = sum(_used(segment) for segment in others)
        rows.append(("others", format_bytes(size), format_bytes(used), f"{len(others)}", ""))
    heading = ("segment", "bytes", "used", "for", f"{_USED} used, {_PARTLY} in part, {_FREE} free")
    return table(heading, rows, right=("bytes", "used"))


def _used(segment: SegmentState) -> int:
    return sum(block.size for block in segment.blocks if block.storage >= 0)


def _kind(segment: SegmentState) -> str:
    words = ["small" if segment.small else "large"]
    if segment.stream:
        words.append(f"stream {segment.stream}")
    if segment.pool != DEFAULT_POOL:
        words.append(f"pool {segment.pool[0]}.{segment.pool[1]}")
    return " ".join(words)


def _picture(segment: SegmentState) -> str:
    """Draw equal parts of a segment, as many as there are columns."""
    used = [0.0] * _COLUMNS
    scale = _COLUMNS / segment.size
    for block in segment.blocks:
        if block.storage < 0:
            continue
        begin = (block.address - segment.address) * scale
        end = begin + block.size * scale
        for column in range(int(begin), min(_COLUMNS, int(end) + 1)):
            used[column] += max(0.0, min(end, column + 1) - max(begin, column))
    return "".join(_USED if share > 0.99 else _PARTLY if share > 0.01 else _FREE for share in used)
