"""Events as lists that a test can write down."""

from __future__ import annotations

from et_replay.events import Action, MemoryHistory


def rows(history: MemoryHistory) -> list[tuple[str, int, int, int, int]]:
    """Return (action, storage, size, stream, address) for each event."""
    events = history.events
    columns = (events.storage, events.size, events.stream, history.addresses)
    actions = [Action(action).name for action in events.action.tolist()]
    return list(zip(actions, *(column.tolist() for column in columns), strict=True))


def blocks(history: MemoryHistory) -> list[tuple[int, int, int]]:
    """Return (address, size, storage) of every block at the start."""
    return [
        (block.address, block.size, block.storage)
        for segment in history.segments
        for block in segment.blocks
    ]
