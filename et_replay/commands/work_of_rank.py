"""The files of a job's traces in, what this process replays of them, and as which rank, out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from et_replay.commands.input_files import is_folder
from et_replay.commands.notes_of_ranks import warn_together
from et_replay.commands.replay_inputs import program_of
from et_replay.commands.session import OfAllRanksError, Session
from et_replay.errors import ReplayError
from et_replay.formats import open_trace
from et_replay.program.build import check_operations
from et_replay.program.part import part_of
from et_replay.program.program import Program
from et_replay.ranks.collective import Collective, read_collectives
from et_replay.ranks.files import is_pattern, missing_ranks, rank_files
from et_replay.ranks.groups import Groups, process_groups
from et_replay.ranks.inference import Inferred, placed
from et_replay.ranks.matching import match
from et_replay.ranks.own_rank import told_rank
from et_replay.replay_modes import COMM, COMP

if TYPE_CHECKING:
    from et_replay.replay.communication.casting import Casting
    from et_replay.replay.communication.communicator import Communicator


@dataclass(frozen=True)
class Work:
    """What this process replays, and as which rank."""

    program: Program
    casting: Casting
    mode: str
    communicator: Communicator | None


@dataclass(frozen=True)
class Job:
    """The trace files of a job by rank; `size` counts its ranks, None where one file is given.

    Only the trace in that tells which rank it is of, and of how many.
    """

    files: Mapping[int, Path]
    size: int | None


def job_at(path: str) -> Job:
    """List the files of a job's ranks, or the one at `path`."""
    if is_pattern(path) or is_folder(Path(path)):
        files = rank_files(path)
        return Job(files, len(files))
    return Job({0: Path(path)}, None)


def prepare(session: Session, job: Job, mode: str, arguments: argparse.Namespace) -> Work:
    """Read the trace of this process's rank, match those of all, and connect the processes.

    All processes come here, and raise alike what does not fit together.
    """
    rank = sorted(job.files)[session.place.rank % len(job.files)]
    trace = open_trace(job.files[rank], strict=arguments.strict)
    if job.size is None:
        rank = told_rank(trace) or 0
        job = replace(job, files={rank: job.files[0]})
    warn_together(session, arguments, rank, trace.notes)
    groups = process_groups(trace, rank, job.size)
    job = replace(job, size=max(job.size or 1, groups.world_size or 1))
    casting = _cast(session, job, mode, arguments)
    inferred = _check(session, job, mode, arguments).get(rank, {})
    program = program_of(trace, argparse.Namespace(**{**vars(arguments), "quiet": True}))
    warn_together(session, arguments, rank, program.notes, program.window.name)
    if _all_idle(session, program):
        check_operations(program)
    if mode == COMP:
        return Work(program, casting, mode, None)
    collectives = placed(groups, read_collectives(program.trace, groups), inferred)
    return _connected(session, program, collectives, groups, casting, mode)


def _cast(session: Session, job: Job, mode: str, arguments: argparse.Namespace) -> Casting:
    """Say which process plays which rank; raises where ranks are missing that must be there."""
    from et_replay.replay.communication.casting import cast

    place, size = session.place, job.size or 1
    allowed = arguments.allow_other_world_size or (mode == COMP and place.size == 1)
    if not allowed and place.size == size:
        way_out = "; --allow-other-world-size replays those that are there"
        if lack := missing_ranks(arguments.trace, job.files, size, way_out):
            raise OfAllRanksError(lack)
    return cast(place, sorted(job.files), size, allowed)


def _check(
    session: Session, job: Job, mode: str, arguments: argparse.Namespace
) -> Mapping[int, Mapping[int, Inferred]]:
    """Match the traces of all ranks in the first process; all raise what does not fit.

    Returns the groups of the calls, by rank and node, for which only all ranks together tell them.
    """
    if mode == COMP or len(job.files) != job.size:
        return {}
    problem = ""
    inferred: Mapping[int, Mapping[int, Inferred]] = {}
    if session.place.rank == 0:
        matching = match(job.files, strict=arguments.strict)
        problem = "" if matching.mismatch is None else matching.mismatch.text
        inferred = matching.inferred
    problem, inferred = session.world.spread((problem, inferred))
    if problem:
        raise OfAllRanksError(problem)
    return inferred


def _all_idle(session: Session, program: Program) -> bool:
    """Tell whether no process has an operation; one without takes part with nothing."""
    return not any(session.world.gather_to_all(bool(program.operations)))


def _connected(
    session: Session,
    program: Program,
    collectives: Sequence[Collective],
    groups: Groups,
    casting: Casting,
    mode: str,
) -> Work:
    """Make what makes the collectives of a program, and connect it with the other processes."""
    from et_replay.replay.communication.communicator import Communicator
    from et_replay.replay.communication.exchange import Exchange
    from et_replay.replay.target import choose_target

    window = program.window
    mine = [each for each in collectives if window.begin <= each.position < window.end]
    if mode == COMM:
        known = {each.node_id for each in mine}
        program = part_of(program, lambda call: call.node.is_collective and call.node.id in known)
        if _all_idle(session, program):
            raise ReplayError(
                f"{program.trace.source} has no collective in window {window.name}, so there is"
                " nothing to replay in mode comm."
            )
    target = choose_target(str(session.target.device), program.device)
    session.watch.expect_collectives()
    exchange = Exchange(session.watch)
    communicator = Communicator(program, mine, groups, casting, session.world, exchange, target)
    communicator.connect()
    return Work(program, casting, mode, communicator)
