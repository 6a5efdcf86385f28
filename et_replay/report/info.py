"""A description of a trace in; one screen of text, or its JSON object, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from et_replay.report.description import AnnotationContent, Description, Obstacle, Peak
from et_replay.report.document import JsonObject
from et_replay.report.table import fields, section, table
from et_replay.units import format_bytes

_SHOWN = 8
"""Lines of a list before the rest is only counted, so that everything fits one screen."""


def info_text(description: Description) -> str:
    """Write a description as one screen of text."""
    parts = [fields(_summary(description))]
    shown = description.operators[:_SHOWN]
    rows = [(name, str(count)) for name, count in shown]
    if len(description.operators) > _SHOWN:
        rows.append((f"and {len(description.operators) - _SHOWN} more", ""))
    title = f"Operators ({len(description.operators)} names)"
    parts.append(section(title, table(("operator", "count"), rows, right=("count",))))
    if description.annotations:
        title = f"Annotations ({len(description.annotations)} names), for --subgraph"
        parts.append(section(title, _annotations(description.annotations)))
    if description.obstacles:
        parts.append(section("Cannot run from the trace alone", _obstacles(description.obstacles)))
    return "\n".join(parts)


def info_object(description: Description) -> JsonObject:
    """Give a description its JSON form."""
    return {
        "trace": description.trace,
        "schema": description.schema,
        "nodes": description.nodes,
        "windows": [{"name": w.name, "operations": w.operations} for w in description.windows],
        "window": description.window,
        "window_node_ids": list(description.node_ids),
        "operations": {"total": description.operations},
        "operators": [{"name": name, "count": count} for name, count in description.operators],
        "annotations": [
            {"name": each.name, "count": each.count, "operations": each.operations}
            for each in description.annotations
        ],
        "device": description.device,
        "devices": list(description.devices),
        "tensors": description.tensors,
        "storage_ids": description.ids,
        "recycled_storage_ids": description.recycled,
        "storages": [
            {"kind": share.kind, "count": share.count, "size_bytes": share.size}
            for share in description.storages
        ],
        "peaks": [
            {
                "tensor_allocation_mode": peak.mode,
                "peak_allocated_bytes": peak.allocated,
                "node_id": peak.node_id,
                "operator": peak.operator,
            }
            for peak in description.peaks
        ],
        "obstacles": [
            {"name": obstacle.name, "count": obstacle.count, "reason": obstacle.reason}
            for obstacle in description.obstacles
        ],
        "notes": list(description.notes),
    }


def _summary(description: Description) -> Iterator[tuple[str, str]]:
    count = sum(share.count for share in description.storages)
    yield "Trace", f"{description.trace}, schema {description.schema}, {description.nodes} nodes"
    windows = [f"{window.name} ({window.operations} operations)" for window in description.windows]
    yield "Windows", _some(windows)
    first, last = description.node_ids
    yield (
        "Described",
        f"window {description.window}, nodes {first} to {last}: "
        f"{description.operations} operations",
    )
    yield "Devices", ", ".join(description.devices) or "none"
    yield (
        "Storages",
        f"{count} under {description.ids} ids, {description.recycled} of which name several\n"
        + "\n".join(
            f"{share.kind}: {share.count}, {format_bytes(share.size)}"
            for share in description.storages
        ),
    )
    yield "Tensors", f"{description.tensors} distinct views of storages"
    yield (
        f"Peak on {description.device}",
        "\n".join(_peak(peak) for peak in description.peaks)
        + "\nSums of requests rounded up to 512 B; a replay tells active and reserved bytes too.",
    )


def _peak(peak: Peak) -> str:
    place = f"in {peak.operator}, node {peak.node_id}" if peak.operator else "before any operation"
    return f"{peak.mode}: {format_bytes(peak.allocated)} {place}"


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return "\n".join([*texts[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _annotations(annotations: Sequence[AnnotationContent]) -> str:
    rows = [(a.name, str(a.count), str(a.operations)) for a in annotations[:_SHOWN]]
    if len(annotations) > _SHOWN:
        rows.append((f"and {len(annotations) - _SHOWN} more", "", ""))
    return table(("annotation", "count", "operations"), rows, right=("count", "operations"))


def _obstacles(obstacles: Sequence[Obstacle]) -> str:
    rows = [(o.name, str(o.count), o.reason) for o in obstacles[:_SHOWN]]
    if len(obstacles) > _SHOWN:
        rows.append((f"and {len(obstacles) - _SHOWN} more", "", ""))
    return table(("call", "count", "why"), rows, right=("count",))
