"""The traces of all ranks of a job in, whether their calls fit together out, or the first misfit.

One file is read after another, in several processes side by side, and of each only a digest comes
back. A group keeps the digest of its first rank until the last of its ranks has been compared with
it, so memory grows with the groups that are open and not with the files. Only where a trace does
not tell the group of a call are all files read again, for the calls of all ranks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_trace
from et_replay.formats.source import BREAKS_OFF
from et_replay.parallel import in_parallel
from et_replay.ranks.collective import Collective, read_collectives
from et_replay.ranks.comparison import CallsOfKind, GroupComparison, Misfit, find_parts
from et_replay.ranks.digest import Key, RankDigest, all_to_all_parts, digest
from et_replay.ranks.files import missing_ranks
from et_replay.ranks.groups import Groups, group_text, named_ranks, process_groups
from et_replay.ranks.inference import Inferred, RankCalls, infer, placed
from et_replay.ranks.kinds import SEND
from et_replay.ranks.own_rank import told_rank
from et_replay.ranks.transfers import Transfers, Unpaired

_SMALL = 32 << 20
"""Bytes of text that are read sooner than other processes have begun: in about a second."""
_PACKED = 20
"""How much smaller a compressed trace is."""
_Read = TypeVar("_Read")
_Reader = Callable[[int, Path, int, bool], _Read]


@dataclass(frozen=True)
class Mismatch:
    """What keeps ranks from running together; `text` is one sentence that names them all.

    `rank`, `node_id` (None where the call is lacking) and `group` say where it was found.
    """

    text: str
    rank: int
    node_id: int | None
    group: tuple[int, ...]


@dataclass(frozen=True)
class MatchedGroup:
    """A group in which there were calls: those of each kind, as one of its ranks saw.

    Sends count on all ranks, and receives nowhere. What comes after the first call that does not
    fit is not compared; sends are compared with receives alone.
    """

    ranks: tuple[int, ...]
    instance: int
    description: str
    kinds: Mapping[str, CallsOfKind]

    @property
    def matched(self) -> bool | None:
        """Whether all calls fit; None where that is not known of some, and none is known not to."""
        verdicts = [calls.matched for calls in self.kinds.values()]
        return None if None in verdicts and False not in verdicts else all(verdicts)


@dataclass(frozen=True)
class Matching:
    """How the ranks of a job fit together; `missing` ranks have no file.

    `inferred` has, by rank and node, the groups of calls for which no trace tells them.
    """

    ranks: tuple[int, ...]
    world_size: int
    missing: tuple[int, ...]
    groups: tuple[MatchedGroup, ...]
    mismatch: Mismatch | None
    notes: tuple[str, ...]
    inferred: Mapping[int, Mapping[int, Inferred]] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """The sentence that says why the ranks cannot run together, "" where they can."""
        mismatch = "" if self.mismatch is None else self.mismatch.text
        return missing_ranks("The job", self.ranks, self.world_size) or mismatch


def match(
    files: Mapping[int, Path],
    *,
    jobs: int | None = None,
    backend: str = "loky",
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Matching:
    """Compare the calls of all ranks, each with its file, whole traces at that.

    `jobs` files are read at a time (None: one a core), by a backend of joblib. Raises TraceError
    where a file cannot be read; what does not fit is told by the result.
    """
    matcher = _Matcher()
    for done, found in enumerate(_read_all(read_digest, files, jobs, backend, strict), 1):
        matcher.add(found)
        if progress is not None:
            progress(done, len(files))
    if not matcher.guessing:
        return matcher.result(files, lambda rank: read_calls(rank, files[rank], len(files), strict))
    calls = zip(sorted(files), _read_all(read_calls, files, jobs, backend, strict), strict=True)
    return _infer_and_match(dict(calls), files, matcher.guessing)


def _infer_and_match(
    calls: Mapping[int, RankCalls], files: Mapping[int, Path], guessing: set[int]
) -> Matching:
    """Compare the calls of all ranks by the groups that all of them at once tell."""
    inferred = infer(calls)
    found = {
        rank: (groups, placed(groups, own, inferred[rank])) for rank, (groups, own) in calls.items()
    }
    matcher = _Matcher()
    matcher.guessing |= guessing
    for rank in sorted(found):
        matcher.add(digest(*found[rank]))
    return replace(matcher.result(files, lambda rank: found[rank]), inferred=inferred)


def read_digest(rank: int, path: Path, world_size: int, strict: bool = False) -> RankDigest:
    """Make the digest of a file, as `read_calls` reads it."""
    return digest(*read_calls(rank, path, world_size, strict))


def read_calls(
    rank: int, path: Path, world_size: int, strict: bool = False
) -> tuple[Groups, list[Collective]]:
    """Read the groups and the calls of a rank; `world_size` counts where its trace tells none."""
    trace = open_trace(path, strict=strict)
    groups, calls = calls_in(trace, rank, world_size)
    notes = (*trace.notes, *groups.notes)
    told = told_rank(trace)
    if told is not None and told != rank:
        notes = (*notes, f"The trace {path.name} itself says rank {told}.")
    return replace(groups, notes=notes), calls


def calls_in(trace: ExecutionTrace, rank: int, world_size: int) -> tuple[Groups, list[Collective]]:
    """Return the groups and the calls of a trace that is read already, as `read_calls` does."""
    groups = process_groups(trace, rank, world_size)
    return groups, read_collectives(trace, groups)


def _read_all(
    reader: _Reader[_Read], files: Mapping[int, Path], jobs: int | None, backend: str, strict: bool
) -> Iterator[_Read]:
    """Read the files of all ranks, in order."""
    ranks, world_size = sorted(files), max(files, default=-1) + 1
    if jobs == 1 or sum(map(_text_size, files.values())) < _SMALL:
        for rank in ranks:
            yield reader(rank, files[rank], world_size, strict)
        return
    tasks = ((rank, files[rank], world_size, strict) for rank in ranks)
    yield from in_parallel(reader, tasks, jobs, backend)


def _text_size(path: Path) -> int:
    """Estimate how much a file has to read, unpacked."""
    packed = path.suffix.lower() in (".gz", ".xz", ".zst")
    return path.stat().st_size * (_PACKED if packed else 1)


class _Matcher:
    """Compares digests as they come; a group is closed when the last of its ranks has come.

    `guessing` are the ranks whose traces do not tell the groups of all calls.
    """

    def __init__(self) -> None:
        self.guessing: set[int] = set()
        self._open: dict[Key, GroupComparison] = {}
        self._transfers = Transfers()
        self._closed: list[GroupComparison] = []
        self._notes: dict[str, list[int]] = {}
        self._world_size = 0

    def add(self, read: RankDigest) -> None:
        """Compare one rank with those before it."""
        self._world_size = max(self._world_size, read.world_size or 0, read.rank + 1)
        for note in read.notes:
            self._notes.setdefault(note, []).append(read.rank)
        for group in read.groups:
            comparison = self._open.get(group.key)
            if comparison is None:
                comparison = self._open[group.key] = GroupComparison(read.rank, group)
            else:
                comparison.add(read.rank, group)
            self._transfers.add(read.rank, group)
            if group.guessed:
                self.guessing.add(read.rank)
            if comparison.is_complete:
                self._close(group.key)

    def result(self, files: Mapping[int, Path], calls_of: Callable[[int], RankCalls]) -> Matching:
        """Say what was found, now that all have come; `calls_of` is for the parts of one call."""
        for key in list(self._open):
            self._open[key].lack(files.keys())
            self._close(key)
        misfits = [each.misfit for each in self._closed if each.misfit is not None]
        misfits += self._unpaired(files.keys())
        for each in self._closed:
            if each.unbalanced is not None:
                misfits.append(_unbalanced(each.key, each.unbalanced, calls_of))
        first = min(misfits, key=lambda misfit: misfit.order, default=None)
        members = {rank for each in self._closed for rank in each.key[0]}
        world_size = max(self._world_size, max(members, default=-1) + 1)
        return Matching(
            tuple(sorted(files)),
            world_size,
            tuple(rank for rank in range(world_size) if rank not in files),
            tuple(
                MatchedGroup(*each.key, each.description, each.kinds)
                for each in sorted(self._closed, key=_by_size)
            ),
            None if first is None else self._mismatch(first),
            tuple(of_ranks(note, ranks) for note, ranks in self._notes.items()),
        )

    def _mismatch(self, misfit: Misfit) -> Mismatch:
        """Add to the sentence what makes it doubtful that the job's calls do not fit."""
        ranks = misfit.key[0]
        doubts = []
        if not self.guessing.isdisjoint(ranks):
            doubts.append(
                "the traces do not tell which calls are in this group, so they may fit all the same"
            )
        broken = {
            rank for note, about in self._notes.items() if BREAKS_OFF in note for rank in about
        }
        if lacking := sorted(broken.intersection(ranks)):
            doubts.append(
                f"what was read of {named_ranks(lacking)} {BREAKS_OFF} and may lack calls"
            )
        text = misfit.text
        if doubts:
            way_out = "--replay-mode comp replays without any"
            text = f"{text[:-1]}; {', and '.join(doubts)}: {way_out}."
        return Mismatch(text, misfit.rank, misfit.node_id, ranks)

    def _unpaired(self, ranks: Collection[int]) -> list[Misfit]:
        """List what is sent or received in vain, now that all groups are closed."""
        unpaired = self._transfers.finish(ranks)
        keys = {found.key for found in unpaired}
        for each in self._closed:
            if each.key in keys:
                each.refuse(SEND)
        return [_unpaired(found) for found in unpaired]

    def _close(self, key: Key) -> None:
        comparison = self._open.pop(key)
        comparison.close()
        self._closed.append(comparison)


def _by_size(comparison: GroupComparison) -> tuple[int, Key]:
    return -len(comparison.key[0]), comparison.key


def _unpaired(found: Unpaired) -> Misfit:
    text = f"Rank {found.rank} {found.text}: node {found.node_id}, group {group_text(*found.key)}."
    return Misfit(found.rank, found.node_id, found.key, text, found.node_id)


def _unbalanced(key: Key, call: int, calls_of: Callable[[int], RankCalls]) -> Misfit:
    """Find the parts of one all_to_all, which no digest has."""
    parts = (all_to_all_parts(*calls_of(rank), key, call) for rank in key[0])
    return find_parts(key, call, list(parts))


def of_ranks(note: str, ranks: Sequence[int]) -> str:
    """Write a note with the ranks that it is about."""
    return f"{named_ranks(ranks).capitalize()}: {note}"
