"""A simulated allocator in, a memory snapshot out, as PyTorch's own tools and viewers read it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat

from et_replay.events import DEFAULT_POOL, SegmentState, TraceEntry
from et_replay.formats.allocator_settings import settings_as_fields
from et_replay.formats.segment_fields import segment_fields
from et_replay.origins import Origin

# newer pickles are beyond the viewer, which has an unpickler of its own
_PROTOCOL = 4


def snapshot_pickle(
    segments: Iterable[SegmentState],
    entries: Iterable[TraceEntry],
    settings: str = "",
    origins: Mapping[int, Origin] | None = None,
    storages: Sequence[int] = (),
) -> bytes:
    """Return what `torch.cuda.memory._dump_snapshot` would have written of the same allocator.

    A position in `entries` stands for the time, as a simulation has none. `origins` are those of
    storages, and `storages` name the one that each entry allocates, -1 for none: who made it, and
    what encloses that, stand for the frames of a stack.
    """
    frames = _Frames(origins or {})
    named = zip(entries, chain(storages, repeat(-1)), strict=False)
    content = {
        "segments": [segment_fields(segment, frames.of) for segment in segments],
        "device_traces": [
            [_entry(time, entry, frames.of(storage)) for time, (entry, storage) in enumerate(named)]
        ],
        "allocator_settings": settings_as_fields(settings),
        "external_annotations": [],
    }
    return pickle.dumps(content, _PROTOCOL)


class _Frames:
    """Lists of frames, one for all storages of an origin."""

    def __init__(self, origins: Mapping[int, Origin]) -> None:
        self._origins = origins
        self._lists: dict[Origin, list[dict[str, object]]] = {}

    def of(self, storage: int) -> list[dict[str, object]]:
        """Return the frames of a storage, the innermost first."""
        origin = self._origins.get(storage)
        if origin is None:
            return []
        if origin not in self._lists:
            names = (origin.maker, *reversed(origin.within))
            self._lists[origin] = [{"filename": "", "line": 0, "name": name} for name in names]
        return self._lists[origin]


def _entry(time: int, entry: TraceEntry, frames: list[dict[str, object]]) -> dict[str, object]:
    return {
        "action": entry.action,
        "device_free" if entry.action == "oom" else "addr": entry.address,
        "size": entry.size,
        "stream": entry.stream,
        "time_us": time,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": entry.pool or DEFAULT_POOL,
        "frames": frames,
    }
