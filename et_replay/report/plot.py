"""A memory map in, two pictures of it out: addresses over time, and bytes over time by class.

Needs matplotlib, of the extra `plot`; no other module does.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from et_replay.events import Int64Array
from et_replay.memory_map import Blocks, MemoryMap
from et_replay.origins import MemoryClass, Origin
from et_replay.report.heights import Heights

COLOURS = {
    MemoryClass.WEIGHT: "#0072b2",
    MemoryClass.INPUT: "#56b4e9",
    MemoryClass.GRADIENT: "#d55e00",
    MemoryClass.ACTIVATION: "#009e73",
    MemoryClass.OPTIMIZER_STATE: "#cc79a7",
    MemoryClass.TEMPORARY: "#f0e442",
    MemoryClass.LIBRARY: "#e69f00",
    MemoryClass.UNKNOWN: "#999999",
}
"""The palette of Okabe and Ito, which colour-blind readers tell apart, and a grey: the page's."""
_HATCHED: dict[str, Any] = {"facecolor": "none", "edgecolor": "#999999", "hatch": "////"}
_MIB = 2**20
_SIZE = (7.0, 5.0)  # inches: a text column
_MOST_ROWS = 4000  # more than there are pixels
_UNKNOWN = Origin("")


def plot(each: MemoryMap, form: str) -> bytes:
    """Draw the map and the stack as an image of `form`, png or svg."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (map_axes, stack_axes) = pyplot.subplots(
        2, 1, figsize=_SIZE, sharex=True, layout="constrained", height_ratios=(3, 2)
    )
    kinds = _kinds(each)
    _draw_map(map_axes, each, kinds)
    _draw_stack(stack_axes, each, kinds)
    handles, labels = stack_axes.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, ncols=5, loc="outside lower center")
    map_axes.set_title(f"{each.history.source}, {each.allocator}", fontsize=9)
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=200)
    pyplot.close(figure)
    return out.getvalue()


def _kinds(each: MemoryMap) -> list[MemoryClass]:
    origins = each.history.origins
    return [origins.get(storage, _UNKNOWN).memory_class for storage in each.blocks.storage.tolist()]


def _draw_map(axes: Any, each: MemoryMap, kinds: list[MemoryClass]) -> None:
    """Fill live blocks by class over hatched segments."""
    from matplotlib.collections import PolyCollection

    heights = Heights(each.segments)
    segments, blocks = each.segments, each.blocks
    reserved = _corners(segments.start, segments.end, heights.of(segments.address), segments.size)
    axes.add_collection(PolyCollection(reserved, linewidth=0.3, **_HATCHED))
    corners = _corners(blocks.start, blocks.end, heights.of(blocks.address), blocks.size)
    for kind, colour in COLOURS.items():
        chosen = np.array([each_kind is kind for each_kind in kinds], dtype=bool)
        if chosen.any():
            axes.add_collection(
                PolyCollection(corners[chosen], facecolor=colour, linewidth=0, rasterized=True)
            )
    axes.set_ylim(0, heights.top / _MIB or 1)
    axes.set_ylabel("address (MiB reserved)")
    _mark(axes, each)


def _draw_stack(axes: Any, each: MemoryMap, kinds: list[MemoryClass]) -> None:
    """Stack the live bytes of every class; hatched above them is what is reserved besides."""
    end = len(each.timeline)
    if end:
        rows = _shown_rows(each.timeline.allocated)
        present = [kind for kind in COLOURS if kind in set(kinds)]
        live = [_to_end(_live(each.blocks, kinds, kind, end)[rows]) for kind in present]
        reserved = _to_end(each.timeline.reserved[rows])
        edges = np.append(rows, end)
        if present:
            colours = [COLOURS[kind] for kind in present]
            labels = [kind.value for kind in present]
            axes.stackplot(edges, np.array(live), colors=colours, labels=labels, step="post")
        allocated = _to_end(each.timeline.allocated[rows])
        axes.fill_between(edges, allocated, reserved, step="post", linewidth=0, **_HATCHED)
        axes.step(edges, reserved, where="post", color="black", linewidth=0.8, label="reserved")
    axes.set_xlim(0, max(end, 1))
    axes.set_ylim(0)
    axes.set_xlabel("event")
    axes.set_ylabel("MiB")
    _mark(axes, each)


def _to_end(column: Int64Array) -> Any:
    """Return MiB, the last of them once more: it holds until the end."""
    return np.append(column, column[-1]) / _MIB


def _shown_rows(allocated: Int64Array) -> Int64Array:
    """Choose events to draw: of many, the one of each stretch at which most is allocated."""
    stretches = np.array_split(np.arange(len(allocated)), min(_MOST_ROWS, max(len(allocated), 1)))
    shown = [stretch[np.argmax(allocated[stretch])] for stretch in stretches if len(stretch)]
    return np.array(shown, dtype=np.int64)


def _live(blocks: Blocks, kinds: list[MemoryClass], kind: MemoryClass, rows: int) -> Int64Array:
    """Return the live bytes of a class after each event."""
    chosen = np.array([each is kind for each in kinds], dtype=bool)
    change = np.zeros(rows + 2, dtype=np.int64)
    np.add.at(change, blocks.start[chosen] + 1, blocks.size[chosen])
    np.add.at(change, blocks.end[chosen] + 1, -blocks.size[chosen])
    live: Int64Array = change.cumsum()[1 : rows + 1]
    return live


def _corners(start: Int64Array, end: Int64Array, y: Int64Array, size: Int64Array) -> Any:
    low, high = y / _MIB, (y + size) / _MIB
    left = np.maximum(start, 0)
    corners = ((left, low), (end, low), (end, high), (left, high))
    return np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)


def _mark(axes: Any, each: MemoryMap) -> None:
    """Mark the peak and the failures."""
    axes.axvline(each.peak_row, color="black", linewidth=0.6, linestyle=":")
    for failure in each.failures:
        axes.axvline(failure.event, color="#d55e00", linewidth=0.8)
