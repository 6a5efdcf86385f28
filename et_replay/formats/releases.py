"""A run of segments given back in an allocator's own history in, who gave them back out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from et_replay.events import TraceEntry
from et_replay.formats.allocator_settings import AllocatorSettings
from et_replay.formats.device_ranges import PoolFinder

_LARGEST_SMALL = 1 << 20  # of requests that the pool of small blocks serves
_SMALL_SEGMENT = 2 << 20
_PAGE = 20 << 20  # of an expandable segment of large blocks
_ROUNDING = 20 << 20  # by which a block that is not split may be larger, at least


def at_once(request: TraceEntry, following: TraceEntry | None) -> bool:
    """Tell whether a free is complete as soon as it is requested: no other stream has the block."""
    return (
        following is not None
        and (request.action, following.action) == ("free_requested", "free_completed")
        and following.address == request.address
    )


@dataclass(frozen=True)
class Releases:
    """Tells the allocator's own releases from the program's `empty_cache()`.

    `usable` is what the allocator may hold, None where that is not known, and `limited` whether
    that is a limit of the process: without one there is no garbage collection.
    """

    entries: Sequence[TraceEntry]
    pools: PoolFinder
    usable: int | None
    limited: bool
    settings: AllocatorSettings

    def are_for_request(self, begin: int, end: int, reserved: int) -> bool:
        """Tell whether entries from `begin` on gave back the cache for the request at `end`.

        That goes to the device; `reserved` is what was held before. Garbage collection leaves
        expandable segments alone (`garbage_collect_cached_blocks` in CUDACachingAllocator.cpp).
        """
        if self.usable is None or self._could_have_served(begin, end):
            return False
        following = self.entries[end]
        if following.action == "oom" or reserved + following.size > self.usable:
            return True
        threshold = self.settings.garbage_collection * self.usable
        collects = self.limited and self.entries[begin].action == "segment_free"
        return collects and 0 < threshold < reserved

    def _could_have_served(self, begin: int, end: int) -> bool:
        """Tell whether one of these segments would have served the request: then it was made later.

        Not where a block of another stream has just become free, unless right after its free was
        requested: the allocator waits for streams before it gives back its cache.
        """
        before = self.entries[max(0, begin - 2) : begin]
        completes = bool(before) and before[-1].action == "free_completed"
        if completes and not (len(before) == 2 and at_once(*before)):
            return False
        behind = (self.entries[place] for place in range(end, len(self.entries)))
        request = next((entry for entry in behind if entry.action in ("alloc", "oom")), None)
        if request is None:
            return False
        size = request.size if request.action == "oom" else self.settings.rounded(request.size)
        pool = self.pools.find(request)
        return any(
            entry.stream == request.stream
            and self.pools.find(entry) == pool
            and self._serves(entry, size)
            for entry in self.entries[begin:end]
        )

    def _serves(self, entry: TraceEntry, size: int) -> bool:
        """Tell whether a block as large as what was given back is taken for `size` bytes."""
        if size <= _LARGEST_SMALL:
            return entry.action == "segment_free" and entry.size == _SMALL_SEGMENT
        whole = entry.size > _SMALL_SEGMENT and entry.action == "segment_free"
        if entry.size < size or not (whole or entry.size % _PAGE == 0):
            return False
        largest = self.settings.max_split
        if largest is None or entry.size < largest:
            return True
        return size >= largest and entry.size < size + _ROUNDING
