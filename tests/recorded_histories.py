"""Real allocator histories with the segments that they led to."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

from et_replay.events import BlockState, SegmentState, TraceEntry
from et_replay.formats.allocator_settings import AllocatorSettings, settings_from_fields
from et_replay.formats.snapshot_document import SnapshotDocument
from et_replay.formats.source import read_source

Recorded = tuple[list[SegmentState], list[TraceEntry], AllocatorSettings]


def recordings(folder: Path) -> Iterator[tuple[str, Recorded]]:
    """Yield real histories: of whole programs, and of a window in the life of one."""
    files = [*folder.glob("workloads/*.pickle.gz"), folder / "snapshots/bcrafton_midlife.pickle"]
    for path in sorted(files):
        document = SnapshotDocument.read(read_source(path))
        assert document.settings is not None
        settings = settings_from_fields(document.settings)
        yield path.name, (document.segments(0), document.entries(0), settings)
    for path in sorted(folder.glob("allocator/h200/*.json.xz")):
        yield path.name, recorded_on_h200(path)


def recorded_on_h200(path: Path) -> Recorded:
    content = json.loads(lzma.decompress(path.read_bytes()))
    end = [
        SegmentState(
            address=address,
            size=size,
            stream=stream,
            small=kind == "small",
            expandable=expandable,
            pool=tuple(pool),
            blocks=tuple(
                BlockState(
                    at, size, requested, -1 if state == "inactive" else 0, "pending" in state
                )
                for size, requested, state, at in parts
            ),
        )
        for address, size, stream, kind, pool, expandable, parts in content["segments"]
    ]
    entries = [TraceEntry(*each) for each in content["events"] if each[0] != "snapshot"]
    return end, entries, settings_from_fields(content["allocator_settings"])
