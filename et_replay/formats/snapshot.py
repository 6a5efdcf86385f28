"""CUDA memory snapshots of every torch version, as pickle or JSON: a file in, a history out."""

from __future__ import annotations

from collections.abc import Sequence

from et_replay.errors import TraceError
from et_replay.events import MemoryHistory, SegmentState, TraceEntry
from et_replay.formats.allocator_settings import AllocatorSettings, settings_from_fields
from et_replay.formats.device_ranges import PoolFinder, find_device_memory
from et_replay.formats.snapshot_document import BLOCK_ACTIONS, REQUESTS, SnapshotDocument
from et_replay.formats.snapshot_events import Recorded, read_events
from et_replay.formats.snapshot_frames import FRAMELESS, Stack
from et_replay.formats.snapshot_origins import CLASS_RULE, find_origins
from et_replay.formats.snapshot_version import oldest_version
from et_replay.formats.source import Source
from et_replay.formats.start_state import StartState, rebuild_start
from et_replay.units import counted

KIND = "memory snapshot"

_SHOWN = 8
"""Actions that a note lists."""


def read_snapshot(source: Source, device: int | None = None) -> MemoryHistory:
    """Read the history of one device: by default that with the most events."""
    document = SnapshotDocument.read(source)
    device, notes = _choose(document, device)
    segments, entries = document.segments(device), document.entries(device)
    settings = _settings(document, segments, entries)
    if _is_history(document.actions(device), segments, notes):
        entries = _without_gaps(entries, notes)
    else:
        entries = []
    start = rebuild_start(segments, entries, settings)
    memory = find_device_memory(start.segments, entries, settings.fraction)
    usable = None if memory is None else int(settings.fraction * memory)
    pools = PoolFinder([*start.segments, *segments])
    recorded = read_events(start.segments, entries, pools, usable, settings)
    events = recorded.log.events()
    origins = find_origins(
        events, _stacks(recorded, segments, document.stacks.stacks), document.stacks.stacks
    )
    return MemoryHistory(
        source=source.name,
        kind=KIND,
        events=events,
        addresses=recorded.log.addresses(),
        segments=start.segments,
        device_addresses=recorded.device_addresses,
        settings=settings.text,
        torch_version=oldest_version(document.content),
        pools=recorded.pools,
        device_memory=memory,
        notes=(*filter(None, [source.damage]), *notes, *_notes(entries, start, recorded)),
        origins=origins,
        class_rule=CLASS_RULE if origins else "",
        times=recorded.log.times(),
    )


def _choose(document: SnapshotDocument, wanted: int | None) -> tuple[int, list[str]]:
    devices = document.devices()
    if wanted is None:
        wanted = devices[0]
    if wanted not in devices:
        known = ", ".join(map(str, sorted(devices)))
        raise TraceError(f"{document.name} has nothing of device {wanted}, only of {known}.")
    others = ", ".join(str(device) for device in sorted(devices) if device != wanted)
    if not others:
        return wanted, []
    return wanted, [f"Device {wanted} was read; the snapshot also has device {others}."]


def _settings(
    document: SnapshotDocument, segments: Sequence[SegmentState], entries: Sequence[TraceEntry]
) -> AllocatorSettings:
    """Return the recorded settings; before torch 2.3, what the memory itself shows."""
    fields = document.settings
    if fields is not None:
        return settings_from_fields(fields)
    mapped = any(segment.expandable for segment in segments)
    if mapped or any(entry.action == "segment_map" for entry in entries):
        return settings_from_fields({"expandable_segments": True})
    return AllocatorSettings()


def _is_history(actions: Sequence[str], segments: Sequence[SegmentState], notes: list[str]) -> bool:
    """Tell whether entries of these actions are a history that can be replayed; note why not."""
    if any(action in REQUESTS for action in actions) and (len(actions) > 1 or not segments):
        return True
    if len(actions) < 2 and segments:  # without enabled='all' it keeps one entry
        why = "The snapshot has a state but no history (it was recorded without enabled='all')"
    else:
        others = ", ".join(sorted({ascii(action[:40]) for action in actions})[:_SHOWN])
        why = f"The history has no allocation and no free: its entries are {others}"
    notes.append(f"{why}: there is nothing to replay.")
    return False


def _without_gaps(entries: list[TraceEntry], notes: list[str]) -> list[TraceEntry]:
    """Return the entries, and others where kinds were not recorded."""
    counts = dict.fromkeys(BLOCK_ACTIONS, 0)
    for entry in entries:
        if entry.action in counts:
            counts[entry.action] += 1
    if not counts["alloc"] and any(counts.values()):
        notes.append("The history has no allocation: it shows frees only.")
    freed = counts["free_requested"], counts["free_completed"]
    if all(freed) or not any(freed):
        return entries
    notes.append(
        "Of each free, the history has only the"
        f" {'request' if freed[0] else 'completion'}; the other half is taken to follow at once."
    )
    return [other for entry in entries for other in _both_halves(entry)]


def _both_halves(entry: TraceEntry) -> tuple[TraceEntry, ...]:
    if entry.action not in ("free_requested", "free_completed"):
        return (entry,)
    return entry._replace(action="free_requested"), entry._replace(action="free_completed")


def _stacks(
    recorded: Recorded, end: Sequence[SegmentState], described: Sequence[Stack]
) -> dict[int, int]:
    """Return the stack of each storage; with context="state", only the blocks at the end have one.

    A block that is left at the end without frames in the history takes those of its address.
    """
    framed = {s: n for s, n in recorded.stacks.items() if described[n] is not FRAMELESS}
    stacks = dict(recorded.stacks) if framed else {}
    for block in (block for segment in end for block in segment.blocks):
        storage = recorded.live.get(block.address, -1)
        if block.stack >= 0 and block.storage >= 0 and storage >= 0 and storage not in framed:
            stacks[storage] = block.stack
    return stacks


def _notes(entries: Sequence[TraceEntry], start: StartState, recorded: Recorded) -> list[str]:
    """Say what the history does not prove."""
    notes = []
    live = sum(block.storage >= 0 for segment in start.segments for block in segment.blocks)
    if entries and start.segments:
        text = f"{counted(len(start.segments), 'segment')} and {counted(live, 'live block')}"
        notes.append(f"The history begins with {text}, which were rebuilt from its end.")
    if start.guessed:
        notes.append(
            f"Of {start.guessed} of these blocks, nothing proves the size: each may be up to 1 MiB"
            " larger."
        )
    left_out = start.strays + recorded.unknown + recorded.unseen
    if left_out:
        notes.append(
            f"Entries that contradict the others: {left_out}; they were left out or repaired."
        )
    if recorded.partial_releases:
        notes.append(
            "Releases of a part of the cache for a request, by garbage collection or in search of"
            f" one large block: {recorded.partial_releases}."
        )
    return notes
