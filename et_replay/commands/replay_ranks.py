"""`et_replay replay` of one rank among several: a job's traces in, one report of all ranks out.

Each process replays the trace of its rank. Only the first one reports; whichever fails first says
why, and ends the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from et_replay.commands import options
from et_replay.commands.needs_torch import needs_torch
from et_replay.commands.notes_of_ranks import Told, warnings_of
from et_replay.commands.output import check_destination, progress_bar, warn, write_result
from et_replay.commands.session import OfAllRanksError, Session, fail, join
from et_replay.errors import (
    EtReplayError,
    OutOfMemoryError,
    ReplayError,
    UsageError,
)
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_trace
from et_replay.program.part import part_of
from et_replay.program.program import Program
from et_replay.ranks.collective import Collective, read_collectives
from et_replay.ranks.files import RANK, is_pattern, rank_files
from et_replay.ranks.groups import Groups, named_ranks, process_groups
from et_replay.ranks.inference import Inferred, placed
from et_replay.ranks.matching import match
from et_replay.ranks.own_rank import told_rank
from et_replay.units import counted

if TYPE_CHECKING:
    from et_replay.explain import Explanation, Option
    from et_replay.replay import ReplayOptions, ReplayResult
    from et_replay.replay.communication.casting import Casting
    from et_replay.replay.communication.communicator import Communicator
    from et_replay.replay.communication.place import Place

COMP, COMM, FULL = "comp", "comm", "full"
REPLAY_MODES = (COMP, COMM, FULL)
_PER_RANK = ("profile", "execution_trace", "plan")
"""Where the options are kept that name a file of each rank."""
_OF_ONE = ("dump", "page", "update_config")
"""Where those are that name a file about one process's replay."""
_TOGETHER = 0.5
"""Seconds in which ranks that run out of memory at the same point do so."""


@dataclass(frozen=True)
class Work:
    """What this process replays, and as which rank."""

    program: Program
    casting: Casting
    mode: str
    communicator: Communicator | None


Reasons = tuple["Explanation | None", Sequence["Option"]]


class Ended(NamedTuple):
    """What a process found of the rank that it plays, and where memory ran out, why."""

    rank: int
    result: ReplayResult
    reasons: Reasons | None = None


ProgramReader = Callable[[ExecutionTrace, argparse.Namespace], Program]
OptionsReader = Callable[[argparse.Namespace, Program], "ReplayOptions"]
ReasonsFinder = Callable[[Program, "ReplayResult", argparse.Namespace], Reasons]


def is_for_ranks(arguments: argparse.Namespace) -> bool:
    """Tell whether a replay is one of several, or makes collectives."""
    if arguments.replay_mode in (COMM, FULL) or is_pattern(arguments.trace):
        return True
    started = all(os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
    is_of_several = os.environ.get("WORLD_SIZE") != "1" or options.is_folder(Path(arguments.trace))
    return started and is_of_several


def replay_ranks(
    arguments: argparse.Namespace,
    program_of: ProgramReader,
    options_of: OptionsReader,
    reasons_of: ReasonsFinder,
) -> int:
    """Replay the trace of this process's rank, together with the other processes."""
    with needs_torch("A replay"):
        from et_replay.replay.communication.place import find_place
        from et_replay.replay.target import choose_target, own_device
    place = find_place()
    name = arguments.device if place.alone else own_device(arguments.device, place.local_rank)
    target = choose_target(name, "")
    session = join(place, target, arguments.collective_timeout)
    try:
        code = _replay(session, arguments, program_of, options_of, reasons_of)
        session.world.barrier()
    except (EtReplayError, RuntimeError) as error:
        if place.size > 1:
            return fail(session, error)
        raise
    finally:
        session.watch.stop()
        session.world.close()
    return code


def _ran_out(
    session: Session,
    work: Work,
    mine: Ended,
    explained: Callable[[], Ended],
    arguments: argparse.Namespace,
) -> NoReturn:
    """End all ranks, as the others wait for this one, and report those that ran out of memory.

    The reasons come last, for the others to end at once; torchrun gives this one 30 s for them.
    """
    from et_replay.replay.communication.last_words import leave, left

    rank, size, store = session.place.rank, session.place.size, session.world.store
    failure = mine.result.out_of_memory
    assert failure is not None
    leave(store, rank, mine)

    def report() -> None:
        own = explained()
        time.sleep(_TOGETHER)
        _report({**left(store, size), rank: own}, work, arguments)

    fail(session, failure, report)


def _replay(
    session: Session,
    arguments: argparse.Namespace,
    program_of: ProgramReader,
    options_of: OptionsReader,
    reasons_of: ReasonsFinder,
) -> int:
    place = session.place
    files, job_size = _files(arguments.trace)
    mode = arguments.replay_mode or (FULL if len(files) > 1 or place.size > 1 else COMP)
    arguments = _of_rank(arguments, place, mode)
    work = _prepare(session, files, job_size, mode, arguments, program_of)
    result = _run(session, work, options_of(arguments, work.program), arguments)
    mine = Ended(work.casting.rank, _portable(result))
    has_failed = result.out_of_memory is not None

    def explained() -> Ended:
        """Say why memory ran out; a part of a program, as in mode comm, does not tell."""
        if not has_failed or work.mode == COMM:
            return mine
        return mine._replace(reasons=reasons_of(work.program, result, arguments))

    if has_failed and work.communicator is not None and place.size > 1:
        _ran_out(session, work, mine, explained, arguments)
    said = (*work.program.trace.notes, *work.program.notes)
    _warn(session, arguments, mine.rank, [note for note in result.notes if note not in said])
    gathered = session.world.gather(explained())
    if gathered is not None:
        _report(dict(enumerate(gathered)), work, arguments)
    return OutOfMemoryError.exit_code if has_failed else 0


def _warn(
    session: Session,
    arguments: argparse.Namespace,
    rank: int,
    notes: Sequence[str],
    window: str = "",
) -> None:
    """Let the first process print what all processes have to say; all come here."""
    told = session.world.gather(Told(rank, tuple(notes), window))
    if told is not None:
        warn(warnings_of(told), arguments.quiet)


def _files(path: str) -> tuple[dict[int, Path], int | None]:
    """List the files by rank; of a single one, its trace tells how many ranks there are."""
    if is_pattern(path) or options.is_folder(Path(path)):
        files = rank_files(path)
        return files, len(files)
    return {-1: Path(path)}, None


def _of_rank(arguments: argparse.Namespace, place: Place, mode: str) -> argparse.Namespace:
    """Give this process files of its own, and let only the first one show anything.

    Raises UsageError for a file that all would write.
    """
    mine = argparse.Namespace(**vars(arguments))
    mine.quiet = arguments.quiet or place.rank > 0
    for name in _OF_ONE:
        if getattr(arguments, name) is not None:
            raise UsageError(
                f"{options.flag(name)} is about a replay by one process, without collectives: give"
                " the file of one rank."
            )
    for name in _PER_RANK:
        value = getattr(arguments, name)
        if value is None:
            continue
        if place.size > 1 and RANK not in value:
            raise UsageError(
                f"{options.flag(name)} {value} is one file, and there are {place.size} ranks,"
                f" expected a name with {RANK} in it."
            )
        own = value.replace(RANK, str(place.rank))
        if name != "plan":
            check_destination(own, arguments.force, arguments.trace, options.flag(name))
        setattr(mine, name, own)
    return mine


def _prepare(
    session: Session,
    files: Mapping[int, Path],
    job_size: int | None,
    mode: str,
    arguments: argparse.Namespace,
    program_of: ProgramReader,
) -> Work:
    from et_replay.replay.communication.casting import cast

    place = session.place
    if job_size is None:
        trace = open_trace(files[-1], strict=arguments.strict)
        files = {told_rank(trace) or 0: files[-1]}
    rank = sorted(files)[place.rank % len(files)]
    if job_size is not None:
        trace = open_trace(files[rank], strict=arguments.strict)
    _warn(session, arguments, rank, trace.notes)
    groups = process_groups(trace, rank, job_size)
    job_size = max(job_size or 1, groups.world_size or 1)
    allowed = arguments.allow_other_world_size or (mode == COMP and place.size == 1)
    if not allowed and place.size == job_size:
        _check_complete(arguments.trace, files, job_size)
    casting = cast(place, sorted(files), job_size, allowed)
    inferred: Mapping[int, Inferred] = {}
    if mode != COMP and len(files) == job_size:
        inferred = _check(session, files, arguments).get(rank, {})
    program = program_of(trace, argparse.Namespace(**{**vars(arguments), "quiet": True}))
    _warn(session, arguments, rank, program.notes, program.window.name)
    if mode == COMP:
        return Work(program, casting, mode, None)
    collectives = placed(groups, read_collectives(program.trace, groups), inferred)
    return _connected(session, program, collectives, groups, casting, mode)


def _check_complete(path: str, files: Mapping[int, Path], job_size: int) -> None:
    missing = [rank for rank in range(job_size) if rank not in files]
    if missing:
        raise OfAllRanksError(
            f"{path} has {counted(len(files), 'rank')} of a job of {job_size}:"
            f" {named_ranks(missing)} {'are' if len(missing) > 1 else 'is'} missing;"
            " --allow-other-world-size replays those that are there."
        )


def _check(
    session: Session, files: Mapping[int, Path], arguments: argparse.Namespace
) -> Mapping[int, Mapping[int, Inferred]]:
    """Match the traces of all ranks in the first process; all raise what does not fit.

    Returns the groups of the calls, by rank and node, for which only all ranks together tell them.
    """
    problem = ""
    inferred: Mapping[int, Mapping[int, Inferred]] = {}
    if session.place.rank == 0:
        matching = match(files, strict=arguments.strict)
        problem = "" if matching.mismatch is None else matching.mismatch.text
        inferred = matching.inferred
    problem, inferred = session.world.spread((problem, inferred))
    if problem:
        raise OfAllRanksError(problem)
    return inferred


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
        if not program.operations:
            raise ReplayError(
                f"{program.trace.source} has no collective in window {window.name}, so there is"
                " nothing to replay in mode comm."
            )
    target = choose_target(str(session.target.device), program.device)
    exchange = Exchange(session.watch)
    communicator = Communicator(program, mine, groups, casting, session.world, exchange, target)
    communicator.connect()
    return Work(program, casting, mode, communicator)


def _run(
    session: Session, work: Work, options: ReplayOptions, arguments: argparse.Namespace
) -> ReplayResult:
    from et_replay.replay import replay

    options = dataclasses.replace(
        options,
        replay_mode=work.mode,
        device=str(session.target.device),
        profile=_path(arguments.profile),
        execution_trace=_path(arguments.execution_trace),
    )
    with progress_bar(arguments.quiet) as progress:
        return replay(work.program, options, progress, work.communicator)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _portable(result: ReplayResult) -> ReplayResult:
    """Leave out what is large, and no part of a report of all ranks."""
    return dataclasses.replace(
        result, events=None, plan=None, requests=None, at_failure=None, elsewhere=()
    )


def _report(ended: Mapping[int, Ended], work: Work, arguments: argparse.Namespace) -> None:
    """Write what the processes found that came to an end."""
    from et_replay.report.document import document
    from et_replay.report.ranks import ranks_object, ranks_text

    casting = work.casting
    by_name = {k if casting.differs else each.rank: each for k, each in sorted(ended.items())}
    results = {name: each.result for name, each in by_name.items()}
    reasons = {name: each.reasons for name, each in by_name.items() if each.reasons is not None}
    size = casting.processes
    write_result(
        ranks_text(arguments.trace, results, arguments.verbose, size, reasons),
        document("replay", [ranks_object(arguments.trace, results, size, reasons)]),
        arguments.json,
        arguments.force,
    )
