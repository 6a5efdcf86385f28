"""A request that torch's allocator could not serve in, the state of its device then out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from et_replay.events import SegmentState
from et_replay.formats.allocator_settings import settings_from_fields
from et_replay.formats.snapshot_document import SnapshotDocument
from et_replay.replay.failure_state import FailureState
from et_replay.simulation import nearest_version


class OutOfMemoryWatch:
    """Keeps the state of one device at the last request that torch's allocator could not serve.

    torch tells this to observers, which it never lets go: one is attached for the whole process,
    and heeded only between `start` and `stop`. An allocator that is not torch's takes none.
    """

    def __init__(self) -> None:
        self._attached = False
        self._device: int | None = None
        self._seen: FailureState | None = None

    def start(self, device: int) -> None:
        """Forget what was seen, and watch `device`."""
        self._seen = None
        self._device = device
        if not self._attached:
            self._attached = True
            with suppress(RuntimeError):
                attach = torch._C._cuda_attach_out_of_memory_observer  # type: ignore[attr-defined]
                attach(self._observe)

    def stop(self) -> None:
        """Heed no request any more; what was seen is kept."""
        self._device = None

    def last(self) -> FailureState | None:
        """Return the state at the last request that failed."""
        return self._seen

    def _observe(self, device: int, asked: int, limit: int, free: int) -> None:
        """Be told that the device, which has `free` bytes, did not give a segment of `asked`.

        Runs inside of the allocator: an error here would take the place of torch's own.
        """
        if device != self._device:
            return
        try:
            self._seen = state_of(torch.cuda.memory._snapshot(), device, asked, limit, free)
        except Exception:  # the failure is then reported without it
            self._seen = None


def state_of(
    snapshot: dict[str, Any], device: int, asked: int, limit: int, free: int
) -> FailureState:
    """Read the state of `device` in a snapshot of torch's, taken when it had `free` bytes left.

    `limit` is what torch may hold of it. Raises TraceError where the snapshot is none.
    """
    segments = segments_in(snapshot, device)
    capacity = sum(segment.size for segment in segments) + free
    fields = snapshot.get("allocator_settings")
    return FailureState(
        segments=segments,
        asked=asked,
        capacity=capacity,
        limit=min(limit, capacity),
        settings=settings_from_fields(fields).text if fields else "",
        torch_version=nearest_version(torch.__version__),
    )


def segments_in(snapshot: dict[str, Any], device: int) -> tuple[SegmentState, ...]:
    """Return the segments that a snapshot of torch's shows of `device`."""
    if not snapshot.get("segments"):
        return ()
    return tuple(SnapshotDocument("The state of the allocator", snapshot).segments(device))
