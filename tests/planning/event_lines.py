"""Allocation events from lines that a test can write down: `+a 512` allocates, `-a` frees.

A stream other than 0 stands behind an @, as in `+a 512 @7`; `~a` is a free that is only requested,
`!a` its completion; `( 3` and `) 3` begin and end the private pool 3 for all streams.
"""

from __future__ import annotations

from et_replay.events import Action, AllocationEvents
from et_replay.formats.event_log import EventLog

_ACTIONS = {
    "+": Action.ALLOC,
    "-": Action.FREE,
    "~": Action.FREE_REQUESTED,
    "!": Action.FREE_COMPLETED,
}


def events_of(*lines: str) -> AllocationEvents:
    """Number the storages by their first appearance."""
    log, known = EventLog(), {}
    for line in lines:
        for part in line.split(","):
            words, _, stream = part.strip().partition(" @")
            name, _, number = words[1:].strip().partition(" ")
            if words[0] in "()":
                action = Action.POOL_BEGIN if words[0] == "(" else Action.POOL_END
                log.add(action, int(name), 0, -1)
                continue
            size, on = int(number or 0), int(stream or 0)
            storage, size, on = known.setdefault(name, (len(known), size, on))
            log.add(_ACTIONS[words[0]], storage, size, on)
    return log.events()
