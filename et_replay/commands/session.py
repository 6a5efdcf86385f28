"""A place among the processes of a replay in, the session with the others, and its end, out."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from et_replay.commands.needs_torch import needs_torch
from et_replay.commands.output import say
from et_replay.errors import (
    CommunicationError,
    EtReplayError,
    OutOfMemoryError,
    TraceError,
    UsageError,
    first_line,
)

if TYPE_CHECKING:
    from et_replay.replay.communication.place import Place
    from et_replay.replay.communication.watch import Watch
    from et_replay.replay.communication.world import World
    from et_replay.replay.target import Target


class OfAllRanksError(TraceError):
    """What all ranks find alike, so that it is no matter which of them says it."""


@dataclass(frozen=True)
class Session:
    """This process among the others."""

    place: Place
    world: World
    watch: Watch
    target: Target


def join(place: Place, target: Target, timeout: float) -> Session:
    """Meet the other processes; a collective of more than `timeout` seconds ends all."""
    with needs_torch("A replay of collectives"):
        from et_replay.replay.communication.watch import Watch
        from et_replay.replay.communication.world import World
    world = World(place, target.device, timeout)
    watch = Watch(world.store, place.rank, place.size, timeout, say)
    watch.start()
    return Session(place, world, watch, target)


def fail(
    session: Session,
    error: EtReplayError | RuntimeError,
    report: Callable[[], object] = lambda: None,
) -> NoReturn:
    """Say why all ranks end, and `report`, unless another one has, and end this one.

    Process groups with calls under way would keep it from ending of its own accord. Raises `error`
    where that is none of this package, and nobody has asked this rank to end.
    """
    rank, watch = session.place.rank, session.watch
    code = error.exit_code if isinstance(error, EtReplayError) else EtReplayError.exit_code
    if not isinstance(error, EtReplayError):
        if not watch.is_ending():
            raise error
        # What a helping process, say, got SIGTERM for as well.
        error = CommunicationError(first_line(error))
    watch.claim()
    if isinstance(error, CommunicationError):
        sentence = watch.lost(f"Rank {rank}: {error}")
    else:
        told = _told(rank, error)
        sentence = told if watch.tell(told) else None
    if sentence is not None:
        say(f"et_replay: error: {sentence}")
        try:
            report()
        except EtReplayError as failure:
            say(f"et_replay: error: {failure}")
        except Exception:  # a fault of ours, which must not keep this process from ending
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def _told(rank: int, error: EtReplayError) -> str:
    """Write what went wrong, and in which rank unless it is the same in all."""
    if isinstance(error, (UsageError, OfAllRanksError)):
        return str(error)
    if isinstance(error, OutOfMemoryError) and error.node_id is not None:
        return f"Rank {rank}, node {error.node_id} ({error.operator}): {error}"
    return f"Rank {rank}: {error}"
