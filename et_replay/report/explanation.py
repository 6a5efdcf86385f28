"""An explanation and ways out in; the screen that a person reads, or their JSON objects, out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from et_replay.events import Int64Array
from et_replay.explain import Explanation, Option
from et_replay.explain.causes import causes
from et_replay.explain.way_out import how_to_set
from et_replay.report.document import JsonObject, classes_object, failure_object
from et_replay.report.fit import fit_object
from et_replay.report.segments import segments_text
from et_replay.report.table import fields, section, table
from et_replay.units import counted, format_bytes, format_share

_SHOWN = 10
"""Groups of live storages that are named; the others are added up."""
_WITHIN = 2
_ENGINE = "autograd::engine::"
"""Stands around every node of the backward pass, and repeats the node's name."""
_COLUMNS = 64
_WIDTH = 110
_LEVELS = " ▁▂▃▄▅▆▇█"
_AROUND = 200
"""Events before the moment, and after it, whose memory the JSON has."""


def explanation_text(explanation: Explanation, verbose: bool = False) -> str:
    """Write what was live, where the reserved bytes were, why it failed, and the way there.

    With `verbose` there is a picture of each segment.
    """
    live = sum(explanation.classes.values())
    parts = [
        section(_title(explanation), f"  {_place(explanation)}"),
        section(f"What was live: {format_bytes(live)}", _live_text(explanation, live)),
        section("Where the reserved memory was", _reserved_text(explanation)),
    ]
    if verbose:
        parts.append(section("Segments", segments_text(explanation.segments)))
    reasons = causes(explanation)
    if reasons:
        parts.append(section("Why it did not fit", "\n".join(f"  {text}" for text in reasons)))
    if len(explanation.timeline) > 1:
        parts.append(section("Memory over time", _timeline_text(explanation)))
    return "\n".join(parts)


def way_out_text(options: Sequence[Option]) -> str:
    """Write what would fit, the roomiest first."""
    capacity = format_bytes(options[0].capacity)
    modes = any(option.mode for option in options)
    heading = ["allocator", "reserves", "least device", "fits", "room", "how"]
    rows = []
    for option in options:
        fit = option.fit
        row = [
            fit.allocator,
            "-" if fit.undefined else format_bytes(fit.device_memory),
            "-" if fit.undefined else format_bytes(fit.least),
            _verdict(option),
            "-" if fit.undefined else format_bytes(option.room),
            how_to_set(fit.allocator, option.mode),
        ]
        rows.append([option.mode or "-", *row] if modes else row)
    if modes:
        heading = ["mode", *heading]
    body = table(heading, rows, right=("reserves", "least device", "room"))
    return section(f"What would fit {capacity}", f"{_advice(options)}{body}")


def explanation_object(explanation: Explanation) -> JsonObject:
    """Give an explanation its JSON form."""
    reserved, failures = explanation.reserved, explanation.failures
    return {
        "allocator": explanation.allocator,
        "event": explanation.row,
        "failure": None if explanation.failure is None else failure_object(explanation.failure),
        "failures": {
            "new_events": list(failures.new),
            "reproduced_events": list(failures.reproduced),
            "absent_events": list(failures.absent),
        },
        "causes": causes(explanation),
        "classes": classes_object(explanation.classes),
        "class_rule": explanation.class_rule,
        "live": [
            {
                "class": group.origin.memory_class.value,
                "maker": group.origin.maker,
                "within": list(group.origin.within),
                "blocks": group.count,
                "bytes": group.bytes,
            }
            for group in explanation.groups
        ],
        "reserved": {
            "requested_bytes": reserved.requested,
            "rounding_bytes": reserved.rounding,
            "unsplit_bytes": reserved.unsplit,
            "awaiting_bytes": reserved.awaiting,
            "other_pools_bytes": reserved.pools,
            "other_streams_bytes": reserved.streams,
            "other_sizes_bytes": reserved.sizes,
            "holes_bytes": reserved.holes,
            "idle_segments_bytes": reserved.idle,
            "free_blocks": reserved.free_blocks,
            "largest_free_bytes": reserved.largest_free,
            "largest_hole_bytes": reserved.largest_hole,
        },
        "timeline": _timeline_object(explanation),
    }


def option_object(option: Option) -> JsonObject:
    """Give a way out its JSON form."""
    return {
        **fit_object(option.fit),
        "mode": option.mode or None,
        "capacity_bytes": option.capacity,
        "fits": option.fits,
        "retries_there": option.retries,
        "room_bytes": None if option.fit.undefined else option.room,
        "how": how_to_set(option.fit.allocator, option.mode),
    }


def _title(explanation: Explanation) -> str:
    if explanation.failure is not None:
        return str(explanation.failure)
    statistics = explanation.statistics
    moment = "The recorded state" if explanation.row < 0 else "The peak"
    return (
        f"{moment}: {format_bytes(statistics.reserved_bytes)} reserved, of which"
        f" {format_bytes(statistics.allocated_bytes)} are allocated."
    )


def _place(explanation: Explanation) -> str:
    failure, reserved = explanation.failure, explanation.reserved
    if explanation.row < 0:
        place = "before the first event"
    else:
        # Where the failure is all that happened, there is nothing to count from.
        places = [f"event {explanation.row}"] if len(explanation.timeline) > 1 else []
        if failure is not None and failure.node_id is not None:
            places.append(f"node {failure.node_id}")
        place = f"at {', '.join(places)}" if places else "before any operation"
        if explanation.origin.maker != "-":
            place += f", in {explanation.origin.maker}"
            if within := _within(explanation.origin.within):
                place += f" (within {within})"
    verb = "It failed" if failure is not None else "It is"
    return (
        f"{verb} {place}; {counted(reserved.free_blocks, 'free block')}, the largest"
        f" {format_bytes(reserved.largest_free)}."
    )


def _live_text(explanation: Explanation, live: int) -> str:
    blocks = dict.fromkeys(explanation.classes, 0)
    for group in explanation.groups:
        blocks[group.origin.memory_class] += group.count
    classes = table(
        ("bytes", "share", "blocks", "class"),
        [
            (format_bytes(size), format_share(size / live), str(blocks[kind]), kind.value)
            for kind, size in explanation.classes.items()
        ],
        right=("bytes", "share", "blocks"),
    )
    rule = "".join(f"\n  {line}" for line in textwrap.wrap(explanation.class_rule, _WIDTH))
    if all(group.origin.maker == "-" for group in explanation.groups):
        return f"{classes}\n  The file does not tell who made them."
    return f"{classes}{rule}\n{_groups_text(explanation, live)}"


def _groups_text(explanation: Explanation, live: int) -> str:
    groups = explanation.groups
    rows = [
        (
            format_bytes(group.bytes),
            format_share(group.bytes / live),
            str(group.count),
            group.origin.memory_class.value,
            group.origin.maker,
            _within(group.origin.within),
        )
        for group in groups[:_SHOWN]
    ]
    if others := groups[_SHOWN:]:
        size = sum(group.bytes for group in others)
        count = sum(group.count for group in others)
        rows.append((format_bytes(size), format_share(size / live), str(count), "others", "", ""))
    return table(
        ("bytes", "share", "blocks", "class", "made by", "within"),
        rows,
        right=("bytes", "share", "blocks"),
    )


def _within(names: Sequence[str]) -> str:
    """Write the innermost of what encloses a storage's maker."""
    telling = [name for name in names if not name.startswith(_ENGINE)]
    return " > ".join(telling[-_WITHIN:])


def _reserved_text(explanation: Explanation) -> str:
    reserved, total = explanation.reserved, explanation.statistics.reserved_bytes
    parts = (
        (reserved.requested, "requested by the owners of live blocks"),
        (reserved.rounding, "rounding of their sizes to 512 B"),
        (reserved.unsplit, "rests of live blocks that were not split"),
        (reserved.awaiting, "freed, but awaited by another stream"),
        (reserved.holes, "holes beside live blocks, in reach of the request"),
        (reserved.idle, "free segments in reach of the request"),
        (reserved.streams, "free, stranded in other streams"),
        (reserved.pools, "free, stranded in other pools"),
        (reserved.sizes, "free, in segments for small requests")
        if not explanation.request.small
        else (reserved.sizes, "free, in segments for large requests"),
    )
    rows = [
        (format_bytes(size), format_share(size / total if total else 0), text)
        for size, text in parts
        if size
    ]
    return table(("bytes", "share", "what"), rows, right=("bytes", "share"))


def _timeline_text(explanation: Explanation) -> str:
    timeline = explanation.timeline
    end = explanation.row + 1 if explanation.failure is not None else len(timeline)
    top = int(timeline.reserved[:end].max())
    most = max(top, 1)
    text = fields(
        (f"  {name}", _sparkline(column[:end], most))
        for name, column in (("allocated", timeline.allocated), ("reserved", timeline.reserved))
    )
    what = "the failure" if explanation.failure is not None else "the last event"
    return f"{text}\n  From the first event to {what}; the top is {format_bytes(top)}."


def _sparkline(column: Int64Array, most: int) -> str:
    """Draw a column in a line: the largest of each of its parts."""
    parts = np.array_split(column, min(_COLUMNS, len(column)))
    return "".join(_LEVELS[-(-int(part.max()) * (len(_LEVELS) - 1) // most)] for part in parts)


def _timeline_object(explanation: Explanation) -> JsonObject:
    timeline, row = explanation.timeline, explanation.row
    begin, end = max(0, row - _AROUND), min(len(timeline), row + _AROUND + 1)
    return {
        "first_event": begin,
        "allocated_bytes": timeline.allocated[begin:end].tolist(),
        "reserved_bytes": timeline.reserved[begin:end].tolist(),
    }


def _advice(options: Sequence[Option]) -> str:
    """Say so where no allocator fits, and what comes nearest."""
    real = [o for o in options if o.fit.allocator != "ideal" and not o.fit.undefined]
    if not real or any(option.fits for option in real):
        return ""
    nearest = min(real, key=lambda option: option.fit.least)
    text = f"  Nothing: the least device is {format_bytes(nearest.fit.least)}, with"
    return f"{text} {how_to_set(nearest.fit.allocator, nearest.mode)}.\n"


def _verdict(option: Option) -> str:
    if option.fit.undefined:
        return "undefined in torch"
    if not option.fits:
        return "no"
    return f"with {counted(option.retries, 'retry', 'retries')}" if option.retries else "yes"
