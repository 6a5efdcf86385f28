"""Recorded allocation streams, the JSON that Megatron-LM's replay.py replays: it in, a history out.

    {"streams": [...],
     "allocations": [[size, stream, pool, begin, requested, completed], ...],
     "events": [[index, "a", allocation], [index, "f", allocation], [index, "c", allocation],
                [index, "begin"], [index, "end"], [index, "cache"], [index, "mark", phase]],
     "expected": {"peak_reserved": ..., ...}}

An allocation is freed on request at "f", and complete at "c".
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from et_replay.errors import TraceError
from et_replay.events import LARGEST_POOL, Action, MemoryHistory, pool_number
from et_replay.formats.event_log import LARGEST, LARGEST_BYTES, EventLog
from et_replay.formats.source import Source
from et_replay.units import counted, format_bytes

KIND = "recorded streams"


class _Allocation(msgspec.Struct, array_like=True):
    size: int
    stream: int
    pool: int | None = None


class _Document(msgspec.Struct):
    allocations: list[_Allocation]
    events: list[list[Any]]
    expected: dict[str, Any] = {}


def read_recorded_streams(source: Source) -> MemoryHistory:
    """Read the streams; they have no addresses."""
    try:
        document = msgspec.json.decode(source.text, type=_Document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{source.name} holds no recorded streams: {error}.") from error
    reader = _Reader(source.name, document)
    for number in range(len(document.events)):
        reader.read(number)
    notes = [*filter(None, [source.damage])]
    if reader.unknown:
        notes.append(f"Left out: {counted(reader.unknown, 'event')} of a kind that is not known.")
    peak = document.expected.get("peak_reserved")
    if type(peak) is int:
        notes.append(f"Recorded peak reserved: {format_bytes(peak)}.")
    return MemoryHistory(
        source=source.name,
        kind=KIND,
        events=reader.log.events(),
        addresses=reader.log.addresses(),
        pools=tuple((0, pool) for pool in reader.pools),
        notes=tuple(notes),
    )


class _Reader:
    """Reads event after event; `pools` are the numbers that the file gives its private pools."""

    def __init__(self, name: str, document: _Document) -> None:
        self.log = EventLog()
        self.pools: list[int] = []
        self.unknown = 0
        self._name = name
        self._allocations = document.allocations
        self._events = document.events
        self._live: set[int] = set()
        self._pending: set[int] = set()
        self._routed: int | None = None
        self._completes = any(event[1:2] == ["c"] for event in self._events)

    def read(self, number: int) -> None:
        """Add the rows of an event."""
        action = self._action(number)
        if action in ("a", "f", "c"):
            self._read_block(number, action)
        elif action == "begin":
            self._route(self._next_pool(number))
        elif action == "end":
            self._route(None)
        elif action == "cache":
            self.log.add(Action.EMPTY_CACHE)
        elif action != "mark":
            self.unknown += 1

    def _read_block(self, number: int, action: str) -> None:
        index = self._index(number)
        allocation = self._allocations[index]
        row = index, allocation.size, allocation.stream
        if action == "a" and index not in self._live:
            self._live.add(index)
            self.log.add(Action.ALLOC, *row)
        elif action == "f" and index in self._live:
            self._live.remove(index)
            if self._completes_at_once(number, index):
                self.log.add(Action.FREE, *row)
            else:
                self._pending.add(index)
                self.log.add(Action.FREE_REQUESTED, *row)
        elif action == "c" and index in self._pending:
            self._pending.remove(index)
            self.log.add(Action.FREE_COMPLETED, *row)
        elif action != "c":
            self._fail(number, "an allocation that is not live, or is already")

    def _completes_at_once(self, number: int, index: int) -> bool:
        if not self._completes:
            return True
        following = number + 1
        if following == len(self._events) or self._action(following) != "c":
            return False
        return self._index(following) == index

    def _next_pool(self, number: int) -> int:
        """Return the pool that a scope begins: that of the next allocation in it."""
        for following in range(number + 1, len(self._events)):
            action = self._action(following)
            if action in ("begin", "end"):
                break
            if action == "a":
                return self._allocations[self._index(following)].pool or 1
        return 1

    def _route(self, pool: int | None) -> None:
        if self._routed is not None:
            self.log.add(Action.POOL_END, pool_number((0, self._routed)))
        if pool is not None:
            if pool not in self.pools:
                self.pools.append(pool)
            self.log.add(Action.POOL_BEGIN, pool_number((0, pool)), stream=-1)
        self._routed = pool

    def _action(self, number: int) -> str:
        event = self._events[number]
        if len(event) < 2 or not isinstance(event[1], str):
            self._fail(number, "no action")
        return event[1]

    def _index(self, number: int) -> int:
        event = self._events[number]
        index = event[2] if len(event) > 2 else None
        if type(index) is not int or not 0 <= index < len(self._allocations):
            self._fail(number, "no allocation of the file")
        allocation = self._allocations[index]
        if not 0 <= allocation.size <= LARGEST_BYTES:
            expected = f"expected 0 to {LARGEST_BYTES}"
            self._fail(number, f"an allocation of {allocation.size} bytes, {expected}")
        if not 0 <= allocation.stream <= LARGEST:
            expected = f"expected 0 to {LARGEST}"
            self._fail(number, f"an allocation on the stream {allocation.stream}, {expected}")
        if not 0 <= (allocation.pool or 0) <= LARGEST_POOL[1]:
            expected = f"expected 0 to {LARGEST_POOL[1]}"
            self._fail(number, f"an allocation in the pool {allocation.pool}, {expected}")
        return index

    def _fail(self, number: int, what: str) -> NoReturn:
        raise TraceError(f"{self._name} holds no recorded streams: events[{number}] has {what}.")
