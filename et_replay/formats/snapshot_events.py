"""An allocator's own history in, events out: what the program did, without what the allocator did.

A run of `segment_free` is the allocator's own doing where a request needed the memory, else the
program's `empty_cache()`. The history does not tell them apart, but:

- where something follows that takes no memory from the device, the program did it;
- where segments without a block in use stay behind, and a request to the device follows, it is
  garbage collection or the search for one large block: a part of the cache goes, for that request;
- else it is the whole cache just before a request to the device. Where a part of it would have
  served the request, the program did it. An out-of-memory event tells how much the device gives;
  where the request would have exceeded that, it is a retry, and where the threshold was exceeded,
  garbage collection. Otherwise it is taken for `empty_cache()`, which leaves the same memory behind
  (see releases.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from et_replay.events import (
    DEFAULT_POOL,
    GROWTHS,
    RELEASES,
    Action,
    SegmentState,
    TraceEntry,
    pool_number,
)
from et_replay.formats.allocator_settings import AllocatorSettings
from et_replay.formats.device_ranges import PoolFinder, ReservedRanges, is_limited
from et_replay.formats.event_log import EventLog
from et_replay.formats.releases import Releases, at_once


@dataclass(frozen=True)
class Recorded:
    """Events, and what the entries tell beside them.

    `partial_releases` counts the runs that gave back a part of the cache for a request, `unknown`
    the frees of blocks that nothing allocated, `unseen` the blocks whose free is missing.
    `stacks` has the numbers of the stacks that made the storages, `live` the storages that are
    left, by address.
    """

    log: EventLog
    device_addresses: tuple[int, ...]
    pools: tuple[tuple[int, int], ...]
    partial_releases: int
    unknown: int
    unseen: int
    stacks: dict[int, int]
    live: dict[int, int]


def read_events(
    start: Sequence[SegmentState],
    entries: Sequence[TraceEntry],
    pools: PoolFinder,
    usable: int | None,
    settings: AllocatorSettings,
) -> Recorded:
    """Walk the entries forward from the segments at the start.

    `usable` is what the allocator may hold, where that is known.
    """
    limited = settings.fraction < 1 or is_limited(entries)
    forward = _Forward(start, pools, Releases(entries, pools, usable, limited, settings))
    forward.walk(entries)
    return forward.result()


class _Forward:
    """The walk: live blocks by address, reserved ranges, and the pool that requests go to."""

    def __init__(
        self,
        start: Sequence[SegmentState],
        pools: PoolFinder,
        releases: Releases,
    ) -> None:
        self._pools = pools
        self._releases = releases
        self._log = EventLog()
        self._live: dict[int, tuple[int, int, int]] = {}
        self._reserved = ReservedRanges(start)
        self._device_addresses: list[int] = []
        self._begun: dict[tuple[int, int], int] = {}
        self._routed = DEFAULT_POOL
        self._last_uses: dict[tuple[int, int], int] = {}
        self._stacks: dict[int, int] = {}
        self._partial = self._unknown = self._unseen = 0
        for segment in start:
            for block in segment.blocks:
                if block.storage >= 0:
                    self._live[block.address] = block.storage, block.requested, segment.stream
                    if block.stack >= 0:
                        self._stacks[block.storage] = block.stack
                if segment.pool != DEFAULT_POOL:
                    self._begun.setdefault(segment.pool, 1)
        self._storages = len(self._live)

    def result(self) -> Recorded:
        """Return what has been walked."""
        return Recorded(
            self._log,
            tuple(self._device_addresses),
            tuple(self._begun),
            self._partial,
            self._unknown,
            self._unseen,
            self._stacks,
            {address: storage for address, (storage, _, _) in self._live.items()},
        )

    def walk(self, entries: Sequence[TraceEntry]) -> None:
        """Add the events of all entries."""
        self._last_uses = {
            self._pools.find(entry): position
            for position, entry in enumerate(entries)
            if entry.action == "alloc"
        }
        position = 0
        while position < len(entries):
            entry = entries[position]
            self._log.time = entry.time
            if entry.action in RELEASES:
                end = position
                while end < len(entries) and entries[end].action in RELEASES:
                    end += 1
                self._release(entries, position, end)
                position = end
                continue
            position += 1
            if entry.action == "free_requested":
                following = entries[position] if position < len(entries) else None
                whole = at_once(entry, following)
                self._free(entry, Action.FREE if whole else Action.FREE_REQUESTED)
                position += whole
            else:
                self._add(entry)

    def _add(self, entry: TraceEntry) -> None:
        action, address, size, stream, *_ = entry
        if action == "alloc":
            self._allocate(entry)
        elif action == "free_completed":
            self._free(entry, Action.FREE_COMPLETED)
        elif action == "oom":
            self._log.add(Action.OUT_OF_MEMORY, self._new_storage(entry), size, stream)
        elif action in GROWTHS:
            self._reserved.add(address, size)
            self._device_addresses.append(address)

    def _allocate(self, entry: TraceEntry) -> None:
        address, size, stream = entry.address, entry.size, entry.stream
        self._route(self._pools.find(entry))
        if address in self._live:
            self._unseen += 1
            self._log.add(Action.FREE, *self._live[address], address)
        storage = self._new_storage(entry)
        self._live[address] = storage, size, stream
        self._log.add(Action.ALLOC, storage, size, stream, address)

    def _new_storage(self, entry: TraceEntry) -> int:
        """Number what an entry asks for, and keep who asked."""
        storage = self._storages
        self._storages += 1
        if entry.stack >= 0:
            self._stacks[storage] = entry.stack
        return storage

    def _free(self, entry: TraceEntry, action: Action) -> None:
        block = self._live.get(entry.address)
        if block is None:
            self._unknown += 1
            return
        if action is not Action.FREE_REQUESTED:
            del self._live[entry.address]
        self._log.add(action, *block, entry.address)

    def _route(self, pool: tuple[int, int]) -> None:
        """Let requests go to another pool from here on."""
        if pool == self._routed:
            return
        if self._routed != DEFAULT_POOL:
            self._log.add(Action.POOL_END, pool_number(self._routed))
        if pool != DEFAULT_POOL:
            self._begun[pool] = self._begun.get(pool, 0) + 1
            self._log.add(Action.POOL_BEGIN, pool_number(pool), stream=-1)
        self._routed = pool

    def _release(self, entries: Sequence[TraceEntry], begin: int, end: int) -> None:
        """Take back what a run of releases gave to the device, and say who did it.

        A private pool of which something is given back is in use no more, unless it is used later:
        then it was for a request.
        """
        run, following = entries[begin:end], entries[end] if end < len(entries) else None
        before = self._reserved.total
        for pool in {self._pools.find(entry) for entry in run} - {DEFAULT_POOL}:
            if self._last_uses.get(pool, begin) > begin:
                continue
            self._route(DEFAULT_POOL)
            if self._begun.get(pool, 0):
                self._log.add(Action.POOL_RELEASE, pool_number(pool))
            self._begun[pool] = 0
        for entry in run:
            self._reserved.give_back(entry.address, entry.size)
        if following is None or following.action not in (*GROWTHS, "oom"):
            self._empty_cache()
        elif run[0].action == "segment_free" and self._has_idle_segment():
            self._partial += 1
        elif not self._releases.are_for_request(begin, end, before):
            self._empty_cache()

    def _empty_cache(self) -> None:
        """Let the program do so, which it cannot while it captures."""
        self._route(DEFAULT_POOL)
        self._log.add(Action.EMPTY_CACHE)

    def _has_idle_segment(self) -> bool:
        """Tell whether a segment outside of private pools is left without a block in it."""
        idle = self._reserved.idle(self._live)
        return any(self._pools.find_at(start) == DEFAULT_POOL for start in idle)
