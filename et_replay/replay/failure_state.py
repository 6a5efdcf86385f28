"""The state of a real device at a request that did not fit it in, the history to explain it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from et_replay.errors import OutOfMemoryError
from et_replay.events import Action, AllocationEvents, BlockState, MemoryHistory, SegmentState
from et_replay.formats.allocator_settings import settings_from_text
from et_replay.origins import MemoryClass, Origin
from et_replay.program import CLASS_RULE, Program, StorageKind, history_of_replay, origins
from et_replay.program.surroundings import enclosing_annotations

_MIB = 2**20
_SMALL_SEGMENT, _LARGEST_SMALL = 2 * _MIB, _MIB
_SHARED_SEGMENT, _LEAST_OWN = 20 * _MIB, 10 * _MIB
"""c10/cuda/CUDACachingAllocator, get_allocation_size: requests up to 1 MiB get a segment of 2 MiB,
those below 10 MiB one of 20 MiB, larger ones their own in steps of 2 MiB.
"""

_ABANDONED = Origin("the failing operation's own", (), MemoryClass.TEMPORARY)
_LIBRARY = Origin("in no tensor of the trace", (), MemoryClass.LIBRARY)
_RULE = (
    " What no tensor of the trace holds is the failing operation's own where it was free again once"
    " that had given up (temporaries), else of a library or of the process (library workspaces)."
)


@dataclass(frozen=True)
class FailureState:
    """A real device at the moment at which a request did not fit it; sizes are bytes.

    `segments` are all that its allocator had reserved; the storage of a live block is 0. `asked` is
    the segment that the device was asked for, and `requested` the request itself, if the allocator
    tells it. It could have had `capacity` of the device, and may hold `limit` of that. `settings`
    are those of the allocator, as of `torch_version`. `abandoned` are the addresses of the live
    blocks that were free again once the operation had been given up.
    """

    segments: tuple[SegmentState, ...]
    asked: int
    capacity: int
    limit: int
    settings: str
    torch_version: str
    abandoned: frozenset[int] = frozenset()
    requested: int | None = None

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def allocated(self) -> int:
        return sum(
            block.size
            for segment in self.segments
            for block in segment.blocks
            if block.storage >= 0 and not block.active_only
        )

    @property
    def largest_free(self) -> int:
        blocks = (block for segment in self.segments for block in segment.blocks)
        return max((block.size for block in blocks if block.storage < 0), default=0)


def live_addresses(segments: tuple[SegmentState, ...]) -> frozenset[int]:
    """Return where the live blocks begin."""
    return frozenset(
        block.address for segment in segments for block in segment.blocks if block.storage >= 0
    )


def history_at_failure(
    program: Program, state: FailureState, storage_at: Mapping[int, int], failure: OutOfMemoryError
) -> MemoryHistory:
    """Make the history that begins with `state`, and whose one event is the request that failed.

    `storage_at` tells which storage of `program` begins at an address. `failure` names the
    operation, or none where the inputs did not fit.
    """
    makers = origins(program)
    segments, request = _named(program, state, storage_at, makers)
    live = {block.storage for segment in segments for block in segment.blocks}
    size, makers[request] = _request(program, state, failure, live, makers)
    events = AllocationEvents(
        action=np.array([Action.OUT_OF_MEMORY], dtype=np.int8),
        storage=np.array([request], dtype=np.int64),
        size=np.array([size], dtype=np.int64),
        stream=np.zeros(1, dtype=np.int64),
        node_id=np.array([-1 if failure.node_id is None else failure.node_id], dtype=np.int64),
        steps=np.zeros(0, dtype=np.int64),
    )
    return replace(
        history_of_replay(program, events, 0),
        segments=segments,
        settings=state.settings,
        torch_version=state.torch_version,
        device_memory=state.capacity,
        origins=makers,
        class_rule=CLASS_RULE + _RULE,
    )


def _named(
    program: Program,
    state: FailureState,
    storage_at: Mapping[int, int],
    makers: dict[int, Origin],
) -> tuple[tuple[SegmentState, ...], int]:
    """Give each live block its storage, or a number of its own; return the next free one too.

    Adds to `makers` who made the blocks that have one. A storage may have several blocks, where
    tensors that shared it in the job do not here.
    """
    numbers, named = count(len(program.storages)), set[int]()

    def name(block: BlockState) -> BlockState:
        if block.storage < 0:
            return block
        storage = storage_at.get(block.address, -1)
        if storage < 0 or storage in named:
            maker = makers.get(storage)
            if maker is None:
                maker = _ABANDONED if block.address in state.abandoned else _LIBRARY
            storage = next(numbers)
            makers[storage] = maker
        named.add(storage)
        return replace(block, storage=storage)

    segments = tuple(
        replace(segment, blocks=tuple(map(name, segment.blocks))) for segment in state.segments
    )
    return segments, next(numbers)


def _request(
    program: Program,
    state: FailureState,
    failure: OutOfMemoryError,
    live: set[int],
    makers: Mapping[int, Origin],
) -> tuple[int, Origin]:
    """Tell how much was asked for, and who asked.

    Where the allocator tells the segment alone: if the storages that the operation needs, that are
    not live, and that would have such a segment, are of one size, it is that; else the largest
    possible.
    """
    place = _place(program, failure)
    rounded = settings_from_text(state.settings).rounded
    fitting = [
        index
        for index in sorted(_wanted(program, place) - live)
        if program.on_device(program.storages[index])
        and _segment_for(rounded(program.storages[index].size)) == state.asked
    ]
    sizes = {program.storages[index].size for index in fitting}
    guess = sizes.pop() if len(sizes) == 1 else _largest_in(state.asked)
    size = guess if state.requested is None else state.requested
    if place is not None:
        name = program.operations[place].node.name
        return size, Origin(name, enclosing_annotations(program)[place])
    return size, makers[fitting[0]] if fitting else Origin("an input")


def _place(program: Program, failure: OutOfMemoryError) -> int | None:
    """Find the operation that failed."""
    for k, operation in enumerate(program.operations):
        if operation.node.id == failure.node_id:
            return k
    return None


def _wanted(program: Program, place: int | None) -> set[int]:
    """Return the storages that an operation takes and makes; without one, all inputs."""
    storages = program.storages
    if place is None:
        return {k for k, each in enumerate(storages) if each.kind is StorageKind.INPUT}
    operation = program.operations[place]
    calls = (operation.call, *operation.calls)
    shown = program.storages_of(slot for call in calls for slot in (*call.inputs, *call.outputs))
    return shown | {k for k, each in enumerate(storages) if each.operation == place}


def _segment_for(size: int) -> int:
    """Return what the device is asked for where a request of `size`, rounded, finds no block."""
    if size <= _LARGEST_SMALL:
        return _SMALL_SEGMENT
    if size < _LEAST_OWN:
        return _SHARED_SEGMENT
    return -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT


def _largest_in(segment: int) -> int:
    """Return the largest request for which the device is asked for `segment`."""
    return _LARGEST_SMALL if segment == _SMALL_SEGMENT else segment
