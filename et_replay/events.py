"""Allocation events as columns: the form of all memory history, and what allocators are fed.

Sizes are bytes, times nanoseconds, intervals half-open [start, end).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from et_replay.origins import Origin

Int64Array = npt.NDArray[np.int64]

DEFAULT_POOL = (0, 0)
"""The id of the pool of all that goes to no private pool."""
GROWTHS = frozenset({"segment_alloc", "segment_map"})
"""The actions of trace entries by which memory came from the device."""
RELEASES = frozenset({"segment_free", "segment_unmap"})
"""Those by which it went back."""


class Action(enum.IntEnum):
    """What an event does; the values are those of the `action` column."""

    ALLOC = 0
    FREE = 1
    """Requested and, unless other streams use the block, completed at once."""
    FREE_REQUESTED = 2
    """The block stays active until its FREE_COMPLETED, as other streams still use it."""
    FREE_COMPLETED = 3
    RECORD_STREAM = 4
    """The stream `stream` uses the block, which belongs to another."""
    EMPTY_CACHE = 5
    OUT_OF_MEMORY = 6
    """A request of `size` that failed when it was recorded; no storage comes of it, but where it is
    known who asked, `storage` is a number of its own."""
    POOL_BEGIN = 7
    """Requests of stream `stream` (-1: of all) go to the private pool `storage` from here on.

    `storage` is the `pool_number` of the pool's id.
    """
    POOL_END = 8
    POOL_RELEASE = 9
    """The private pool `storage` is used no more: its segments may go back to the device."""


LARGEST_POOL = 2**31 - 1, 2**32 - 1
"""The largest numbers in a private pool's id, so that 64 bits hold its `pool_number`."""
_POOL_NUMBERS = 2**32


def pool_number(pool: tuple[int, int]) -> int:
    """Return the number by which events name a private pool: that of (0, n) is n."""
    return pool[0] * _POOL_NUMBERS + pool[1]


def pool_id(number: int) -> tuple[int, int]:
    """Return the id of the pool that events name by a number."""
    return divmod(number, _POOL_NUMBERS)


@dataclass(frozen=True, eq=False)
class AllocationEvents:
    """Events in order, one row each; all columns have the same length.

    `storage` names the allocation: a FREE ends the ALLOC of the same storage. `size` is the bytes
    asked for, repeated on the FREE. `node_id` is the node that makes the storage, or on a FREE the
    last one that shows it; -1 before the first node. `steps[i]` is the first event of operation i,
    `steps[-1]` the end of the last one: events before `steps[0]` prepare the first iteration.
    Sources without operations leave `steps` empty.
    """

    action: npt.NDArray[np.int8]
    storage: Int64Array
    size: Int64Array
    stream: Int64Array
    node_id: Int64Array
    steps: Int64Array

    def __len__(self) -> int:
        return len(self.action)


def routed_pools(events: AllocationEvents) -> Int64Array:
    """Return for each event the number of the pool to which a request there goes, on its stream.

    That is the one begun last of those that take requests of the stream.
    """
    pools: Int64Array = np.full(len(events), pool_number(DEFAULT_POOL), dtype=np.int64)
    begun: dict[int, int] = {}
    begin = 0
    marks = np.flatnonzero(np.isin(events.action, (Action.POOL_BEGIN, Action.POOL_END)))
    for mark in [*marks.tolist(), len(events)]:
        for pool, stream in begun.items():
            pools[begin:mark][(stream < 0) | (events.stream[begin:mark] == stream)] = pool
        begin = mark
        if mark == len(events):
            break
        pool = int(events.storage[mark])
        begun.pop(pool, None)
        if events.action[mark] == Action.POOL_BEGIN:
            begun[pool] = int(events.stream[mark])
    return pools


@dataclass(frozen=True, eq=False)
class PlanColumns:
    """Where in an arena of `arena` bytes each storage has its place; one row each.

    Storage i lives in the ticks [start, end) of an iteration, which lasts `period` of them and
    happens again and again; one with end > period lives on in the next iteration, for good if that
    is a period later or more, and what starts before tick 0 happens once. An `offset` of -1 is that
    of a storage of which only the time is known. A storage may have several rows: then the first
    whose place is free is taken, among those that begin next.
    """

    storage: Int64Array
    offset: Int64Array
    size: Int64Array
    start: Int64Array
    end: Int64Array
    stream: Int64Array
    arena: int
    period: int


@dataclass(frozen=True, eq=False)
class RunPlan:
    """The places of a run's storages, and the requests by which they are told.

    `storage`, `size`, `stream` and `varies` are the requests in the order in which they are
    expected, a row each: one that varies may be of any size. The rows of `columns` are those of
    their storages; what lives longer than an iteration has one for each of its instances that live
    at once. What happens once, up to the iteration that repeats, starts at negative ticks there.
    `begins[k]` is the first request of iteration k; the last of them repeats for ever. `marked`
    says that iterations begin where they are marked while a script runs; else they are those that
    were found in a recording, and begin anywhere in the script's loop.
    """

    columns: PlanColumns
    storage: Int64Array
    size: Int64Array
    stream: Int64Array
    varies: npt.NDArray[np.bool_]
    begins: tuple[int, ...]
    marked: bool

    def __len__(self) -> int:
        return len(self.storage)


@dataclass(frozen=True)
class BlockState:
    """A block of a segment as a memory snapshot shows it; `storage` is -1 for an inactive one."""

    address: int
    size: int
    requested: int
    storage: int
    active_only: bool = False
    """Freed by its owner, but still waited for on another stream."""
    stack: int = field(default=-1, compare=False)
    """Who made it, by number in the table of the snapshot's stacks; -1 where that is not known."""


@dataclass(frozen=True)
class SegmentState:
    """Memory obtained from the device before the first event, and the blocks in it by address."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    pool: tuple[int, int]
    blocks: tuple[BlockState, ...]


class TraceEntry(NamedTuple):
    """One line of an allocator's own history, as in the `device_traces` of a memory snapshot.

    `size` is what was asked for, the whole size for a segment, and rounded for `oom`, whose
    `address` holds the bytes that the device had free. `stack` is who made a block, by number in
    the table of the snapshot's stacks; -1 where that is not known. `time` is in Unix microseconds,
    0 where it is not known.
    """

    action: str
    address: int
    size: int
    stream: int
    pool: tuple[int, int] | None = None
    stack: int = -1
    time: int = 0


@dataclass(frozen=True, eq=False)
class Timeline:
    """What came of each event of a run, one row each.

    `allocated` and `reserved` are bytes after the event, `addresses` that of its block, or 0, and
    `entries` the lines of the allocator's trace so far, where it is recorded.
    """

    allocated: Int64Array
    reserved: Int64Array
    addresses: Int64Array
    entries: Int64Array

    def __len__(self) -> int:
        return len(self.allocated)


@dataclass(frozen=True, eq=False)
class MemoryHistory:
    """Recorded allocation events with what was recorded beside them.

    `addresses` holds the recorded address of each event's block, 0 where there is none;
    `segments` what was reserved before the first event; `device_addresses` the addresses that
    the device gave during the events, in order. `settings` is the allocator configuration in
    PYTORCH_ALLOC_CONF's syntax, `torch_version` the oldest version that can have written the file
    ("" where it does not tell). `pools` are the ids of the private pools, which the events call by
    their `pool_number`. `device_memory` is what the allocator could get from the device, where the
    file proves it, and `gpu_memory` all that the GPU had, where a captured run tells. `notes` says
    in sentences what is missing or was repaired. `origins` names the makers of storages, as far as
    the source tells, and `class_rule` says how it was told what they are for ("" where it was not).
    `operations` names the operation of each step. `times` is when each event happened, in Unix
    microseconds; empty where the source does not tell.
    """

    source: str
    kind: str
    events: AllocationEvents
    addresses: Int64Array
    segments: tuple[SegmentState, ...] = ()
    device_addresses: tuple[int, ...] = ()
    settings: str = ""
    torch_version: str = ""
    pools: tuple[tuple[int, int], ...] = ()
    device_memory: int | None = None
    gpu_memory: int | None = None
    notes: tuple[str, ...] = ()
    origins: Mapping[int, Origin] = field(default_factory=dict)
    class_rule: str = ""
    operations: Sequence[str] = ()
    times: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
