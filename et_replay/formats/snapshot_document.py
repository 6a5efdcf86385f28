"""What a memory snapshot holds, device by device: a file or torch's object in, its parts out."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, NoReturn

import msgspec

from et_replay.errors import TraceError
from et_replay.events import (
    DEFAULT_POOL,
    GROWTHS,
    LARGEST_POOL,
    RELEASES,
    BlockState,
    SegmentState,
    TraceEntry,
)
from et_replay.formats.event_log import LARGEST, LARGEST_BYTES
from et_replay.formats.plain_pickle import is_pickle, load_plain
from et_replay.formats.snapshot_frames import StackTable
from et_replay.formats.source import Source

BLOCK_ACTIONS = frozenset({"alloc", "free_requested", "free_completed"})
SEGMENT_ACTIONS = GROWTHS | RELEASES

REQUESTS = BLOCK_ACTIONS | {"oom"}

_ACTIONS = REQUESTS | SEGMENT_ACTIONS
_MADE = ("alloc", "oom")
_INACTIVE, _PENDING = "inactive", "active_pending_free"


class SnapshotDocument:
    """A snapshot, such as torch.cuda.memory._snapshot() returns.

    `most` is how many blocks and entries it can have. Raises TraceError where it is not what
    snapshots are.
    """

    def __init__(self, name: str, content: Any, most: int = LARGEST) -> None:
        self.name = name
        self.stacks = StackTable()
        if isinstance(content, list):  # torch.cuda.memory_snapshot() returns the segments alone
            content = {"segments": content}
        self.content: dict[Any, Any] = self._expect(dict, content, "a memory snapshot")
        self._segments: list[Any] = self._optional(list, "segments", [])
        traces: list[Any] = self._optional(list, "device_traces", [])
        self._traces: list[list[Any]] = [
            self._expect(list, trace, f"device_traces[{number}]")
            for number, trace in enumerate(traces)
        ]
        if not self._segments and not any(self._traces):
            raise TraceError(f"{self.name} is a memory snapshot without segments and events.")
        self._check(most)

    @classmethod
    def read(cls, source: Source) -> SnapshotDocument:
        """Load a file, which has a byte at least for each block and entry."""
        return cls(source.name, _load(source), len(source.text))

    @property
    def settings(self) -> dict[str, Any] | None:
        """The `allocator_settings`, which torch writes since 2.3."""
        return self._optional(dict, "allocator_settings", None)  # type: ignore[no-any-return]

    def devices(self) -> list[int]:
        """Return the devices that have segments or events, that with the most events first."""
        segments = Counter(segment.get("device", 0) for segment in self._segments)
        counts = {
            device: (len(self._traces[device]) if device < len(self._traces) else 0)
            for device in sorted({*segments, *(n for n, trace in enumerate(self._traces) if trace)})
        }
        return sorted(counts, key=lambda device: (-counts[device], -segments[device], device))

    def segments(self, device: int) -> list[SegmentState]:
        """Return the segments of a device; a live block has 0 for its storage."""
        segments = [
            self._segment(segment, f"segments[{number}]")
            for number, segment in enumerate(self._segments)
            if segment.get("device", 0) == device
        ]
        segments.sort(key=lambda segment: segment.address)
        for one, other in pairwise(segments):
            if one.address + one.size > other.address:
                raise TraceError(
                    f"{self.name} has overlapping segments at {one.address:#x} and"
                    f" {other.address:#x}."
                )
        return segments

    def entries(self, device: int) -> list[TraceEntry]:
        """Return what changed the memory of a device, in order."""
        return [
            self._entry(entry, device, number)
            for number, entry in enumerate(self._trace(device))
            if entry.get("action") in _ACTIONS
        ]

    def actions(self, device: int) -> list[str]:
        """Return the actions of all entries of a device, those that `entries` leaves out too."""
        return [entry["action"] for entry in self._trace(device)]

    def _trace(self, device: int) -> list[Any]:
        return self._traces[device] if device < len(self._traces) else []

    def _check(self, most: int) -> None:
        """Refuse what is no record, and lists that a pickle repeats without writing them again."""
        count = 0
        for number, trace in enumerate(self._traces):
            count += len(trace)
            for index, entry in enumerate(trace if count <= most else ()):
                if entry.__class__ is not dict or entry.get("action").__class__ is not str:
                    self._fail(f"an entry at device_traces[{number}][{index}]", entry)
        for index, segment in enumerate(self._segments):
            where = f"segments[{index}]"
            self._expect(dict, segment, where)
            self._integer(segment.get("device", 0), f"{where}.device")
            count += len(self._expect(list, segment.get("blocks"), f"{where}.blocks"))
        if count > most:
            raise TraceError(f"{self.name} repeats its parts more often than a snapshot can.")

    def _segment(self, segment: dict[str, Any], where: str) -> SegmentState:
        address = self._integer(segment.get("address"), f"{where}.address")
        size = self._size(segment.get("total_size"), f"{where}.total_size")
        position, blocks = address, []
        for number, block in enumerate(segment["blocks"]):
            blocks.append(self._block(block, position, f"{where}.blocks[{number}]"))
            position += blocks[-1].size
        if position != address + size:
            raise TraceError(
                f"{self.name} is damaged: the blocks of {where} do not fill its {size} bytes."
            )
        return SegmentState(
            address=address,
            size=size,
            stream=self._integer(segment.get("stream", 0), f"{where}.stream"),
            small=segment.get("segment_type") == "small",
            expandable=segment.get("is_expandable") is True,
            pool=self._pool(segment.get("segment_pool_id"), f"{where}.segment_pool_id")
            or DEFAULT_POOL,
            blocks=tuple(blocks),
        )

    def _block(self, block: Any, position: int, where: str) -> BlockState:
        """Read a block; torch 2.0 writes no address, as each block follows the one before."""
        self._expect(dict, block, where)
        address = self._integer(block.get("address", position), f"{where}.address")
        size = self._size(block.get("size"), f"{where}.size")
        if address != position or not size:
            raise TraceError(f"{self.name} is damaged: {where} is not where the one before ends.")
        state = block.get("state")
        return BlockState(
            address=address,
            size=size,
            requested=self._size(block.get("requested_size", size), f"{where}.requested_size"),
            storage=-1 if state == _INACTIVE else 0,
            active_only=state == _PENDING,
            stack=-1 if state == _INACTIVE else self.stacks.add(block),
        )

    def _entry(self, entry: dict[str, Any], device: int, number: int) -> TraceEntry:
        action = entry["action"]
        key, most = ("device_free", LARGEST_BYTES) if action == "oom" else ("addr", LARGEST)
        address: Any = entry.get(key)
        size: Any = entry.get("size")
        stream, pool = entry.get("stream", 0), entry.get("pool_id")
        if not (
            type(address) is type(size) is type(stream) is int
            and 0 <= address <= most
            and 0 <= size <= LARGEST_BYTES
            and 0 <= stream <= LARGEST
        ):  # only now which of them, as there may be millions of entries
            where = f"device_traces[{device}][{number}]"
            self._integer(address, f"{where}.{key}", most)
            self._size(size, f"{where}.size")
            self._integer(stream, f"{where}.stream")
        if pool is not None:
            pool = self._pool(pool, f"device_traces[{device}][{number}].pool_id")
        stack = self.stacks.add(entry) if action in _MADE else -1
        time = entry.get("time_us", 0)
        known = type(time) is int and 0 <= time <= LARGEST
        return TraceEntry(action, address, size, stream, pool, stack, time if known else 0)

    def _pool(self, pool: Any, where: str) -> tuple[int, int] | None:
        if pool is None:
            return None
        if not isinstance(pool, (tuple, list)) or len(pool) != 2:
            self._fail(f"a pair at {where}", pool)
        most = LARGEST_POOL
        return self._integer(pool[0], where, most[0]), self._integer(pool[1], where, most[1])

    def _size(self, value: Any, where: str) -> int:
        return self._integer(value, where, LARGEST_BYTES)

    def _integer(self, value: Any, where: str, most: int = LARGEST) -> int:
        if value.__class__ is not int:
            self._fail(f"a number at {where}", value)
        if not 0 <= value <= most:
            self._fail(f"0 to {most} at {where}", value)
        return value

    def _optional(self, kind: type, key: str, default: Any) -> Any:
        value = self.content.get(key)
        return default if value is None else self._expect(kind, value, key)

    def _expect(self, kind: type, value: Any, where: str) -> Any:
        if not isinstance(value, kind):
            self._fail(f"a {kind.__name__} at {where}", value)
        return value

    def _fail(self, expected: str, got: Any) -> NoReturn:
        shown = repr(got)[:40] if isinstance(got, (int, str)) else type(got).__name__
        raise TraceError(
            f"{self.name} is no memory snapshot as torch writes it: expected {expected},"
            f" got {shown}."
        )


def _load(source: Source) -> Any:
    if is_pickle(bytes(source.text[:2])):
        return load_plain(bytes(source.text), source.name)
    try:
        return msgspec.json.decode(source.text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{source.name} is a memory snapshot in broken JSON: {error}.") from error
