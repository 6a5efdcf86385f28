"""The notes and windows of all ranks in, the warnings that one process prints for them out."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from et_replay.commands.output import warn
from et_replay.commands.session import Session
from et_replay.ranks.groups import named_ranks
from et_replay.ranks.matching import of_ranks


class Told(NamedTuple):
    """What a process says of the rank that it plays; no `window` where that is not chosen yet."""

    rank: int
    notes: Sequence[str]
    window: str = ""


def warnings_of(told: Sequence[Told]) -> Iterator[str]:
    """Yield each note once, with the ranks that it is about unless that is all of them.

    Other windows in other ranks are a warning, too.
    """
    everyone = {each.rank for each in told}
    about: dict[str, set[int]] = {}
    windows: dict[str, set[int]] = {}
    for each in told:
        windows.setdefault(each.window, set()).add(each.rank)
        for note in each.notes:
            about.setdefault(note, set()).add(each.rank)
    for note, ranks in about.items():
        yield note if ranks == everyone else of_ranks(note, sorted(ranks))
    if len(windows) > 1:
        found = "; ".join(
            f"{window} in {named_ranks(sorted(ranks))}" for window, ranks in windows.items()
        )
        yield f"The ranks replay different windows: {found}; --window names one for all."


def warn_together(
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
