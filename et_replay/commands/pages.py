"""A history and allocators in; their memory maps, and the page or snapshot of them, out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from et_replay.commands.output import say, write_whole
from et_replay.errors import EtReplayError, OutOfMemoryError, UndefinedBehaviorError
from et_replay.events import MemoryHistory
from et_replay.memory_map import MemoryMap, map_memory
from et_replay.planning import Plan
from et_replay.report.page import page
from et_replay.report.snapshot import snapshot_pickle
from et_replay.serving import plan_for


def maps_of(
    history: MemoryHistory,
    allocators: Sequence[str],
    capacity: int,
    torch_version: str,
    plan: Plan | None = None,
    fraction: float | None = None,
) -> list[MemoryMap]:
    """Map the memory of `history` under every allocator that can serve it at all.

    Of the others it is said why not; raises their error where none can.
    """
    maps: list[MemoryMap] = []
    error: EtReplayError | None = None
    for allocator in allocators:
        try:
            maps.append(
                map_memory(
                    history,
                    allocator,
                    capacity,
                    torch_version=torch_version,
                    plan=plan_for(history, allocator, plan),
                    fraction=fraction,
                )
            )
        except (OutOfMemoryError, UndefinedBehaviorError) as failure:
            error = failure
            say(f"warning: {allocator} is left out: {failure}")
    if error is not None and not maps:
        raise error
    return maps


def snapshot_of(each: MemoryMap) -> bytes:
    """Return the memory snapshot that torch would have written of a map's allocator."""
    asked = each.history.events.storage[each.entry_rows].tolist()
    made = [
        storage if entry.action in ("alloc", "oom") else -1
        for storage, entry in zip(asked, each.entries, strict=True)
    ]
    settings = each.allocator.partition(":")[2]
    return snapshot_pickle(each.state, each.entries, settings, each.history.origins, made)


def write_page(maps: Sequence[MemoryMap], path: str, force: bool) -> None:
    """Write the page of the maps as a whole or not at all."""
    write_whole(Path(path), page(maps).encode(), force)
    say(f"Written {path}")
