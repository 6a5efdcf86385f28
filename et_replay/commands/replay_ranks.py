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
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from et_replay.commands import options
from et_replay.commands.equal_options import check_equal
from et_replay.commands.input_files import is_folder
from et_replay.commands.inputs import plan_path
from et_replay.commands.needs_torch import needs_torch
from et_replay.commands.notes_of_ranks import warn_together
from et_replay.commands.output import check_destination, progress_bar, warn, write_result
from et_replay.commands.reasons import Reasons, reasons_of
from et_replay.commands.replay_inputs import options_for, unmatched_skips
from et_replay.commands.session import Session, fail, join
from et_replay.commands.work_of_rank import Work, job_at, prepare
from et_replay.errors import EtReplayError, OutOfMemoryError, UsageError
from et_replay.explain.explanation import Moment
from et_replay.ranks.files import RANK, is_pattern
from et_replay.replay_modes import COMM, COMP, FULL

if TYPE_CHECKING:
    from et_replay.replay import ReplayOptions, ReplayResult
    from et_replay.replay.communication.place import Place

_PER_RANK = ("profile", "execution_trace", "plan")
"""Where the options are kept that name a file of each rank."""
_OR_A_FOLDER = ", or the folder of plans that et_replay plan --output writes"
_OF_ONE = ("dump", "page", "update_config", "explain")
"""Where those are that are about one process's replay."""
_TOGETHER = 0.5
"""Seconds in which ranks that run out of memory at the same point do so."""


class Ended(NamedTuple):
    """What a process found of the rank that it plays, and where memory ran out, why."""

    rank: int
    result: ReplayResult
    reasons: Reasons | None = None


def is_for_ranks(arguments: argparse.Namespace) -> bool:
    """Tell whether a replay is one of several, or makes collectives."""
    if arguments.replay_mode in (COMM, FULL) or is_pattern(arguments.trace):
        return True
    started = all(os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
    is_of_several = os.environ.get("WORLD_SIZE") != "1" or is_folder(Path(arguments.trace))
    return started and is_of_several


def replay_ranks(arguments: argparse.Namespace) -> int:
    """Replay the trace of this process's rank, together with the other processes."""
    with needs_torch("A replay"):
        from et_replay.replay.communication.place import find_place
        from et_replay.replay.target import choose_target, own_device
    place = find_place()
    name = arguments.device if place.alone else own_device(arguments.device, place.local_rank)
    target = choose_target(name, "")
    session = join(place, target, arguments.collective_timeout)
    try:
        code = _replay(session, arguments)
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


def _replay(session: Session, arguments: argparse.Namespace) -> int:
    place = session.place
    job = job_at(arguments.trace)
    mode = arguments.replay_mode or (FULL if len(job.files) > 1 or place.size > 1 else COMP)
    check_equal(session, arguments, mode)
    arguments = _of_rank(arguments, place)
    work = prepare(session, job, mode, arguments)
    if arguments.plan is not None:
        arguments.plan = plan_path(arguments.plan, work.program.trace.source)
    chosen = options_for(arguments, work.program)
    unmatched = unmatched_skips(work.program, chosen, arguments)
    warn(_in_all(session, unmatched), arguments.quiet)
    result = _run(session, work, chosen, arguments)
    mine = Ended(work.casting.rank, _portable(result))
    has_failed = result.out_of_memory is not None

    def explained() -> Ended:
        """Say why memory ran out."""
        if not has_failed:
            return mine
        return mine._replace(reasons=reasons_of(work.program, result, Moment(arguments.explain)))

    if has_failed and work.communicator is not None and place.size > 1:
        _ran_out(session, work, mine, explained, arguments)
    said = (*work.program.trace.notes, *work.program.notes)
    notes = [note for note in result.notes if note not in said]
    warn_together(session, arguments, mine.rank, notes)
    gathered = session.world.gather(explained())
    if gathered is not None:
        _report(dict(enumerate(gathered)), work, arguments)
    return OutOfMemoryError.exit_code if has_failed else 0


def _in_all(session: Session, said: Sequence[str]) -> list[str]:
    """Return what all processes say; all come here."""
    others = [set(each) for each in session.world.gather_to_all(list(said))]
    return [each for each in said if all(each in other for other in others)]


def _of_rank(arguments: argparse.Namespace, place: Place) -> argparse.Namespace:
    """Give this process files of its own, and let only the first one show anything.

    Raises UsageError for a file that all would write.
    """
    mine = argparse.Namespace(**vars(arguments))
    mine.quiet = arguments.quiet or place.rank > 0
    for name in _OF_ONE:
        if name in arguments.given:
            raise UsageError(
                f"{options.flag(name)} is about a replay by one process, without collectives: give"
                " the file of one rank."
            )
    for name in _PER_RANK:
        value = getattr(arguments, name)
        if value is None or (name == "plan" and is_folder(Path(value))):
            continue  # of a folder of plans this rank takes its own, see `plan_path`
        if place.size > 1 and RANK not in value:
            raise UsageError(
                f"{options.flag(name)} {value} is one file, and there are {place.size} ranks,"
                f" expected a name with {RANK} in it{_OR_A_FOLDER if name == 'plan' else ''}."
            )
        own = value.replace(RANK, str(place.rank))
        if name != "plan":
            check_destination(own, arguments.force, arguments.trace, options.flag(name))
        setattr(mine, name, own)
    return mine


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
