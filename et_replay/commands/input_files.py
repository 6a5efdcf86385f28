"""Paths as the user gives them in, the files to read, and whose they are, out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from et_replay.errors import TraceError, UsageError
from et_replay.formats import Kind, sniff
from et_replay.formats.captured_endings import shortcoming
from et_replay.formats.captured_run import (
    RUN_SUFFIX,
    CapturedRun,
    captured_runs,
    read_captured_run,
    run_that_wrote,
)
from et_replay.ranks.files import (
    is_pattern,
    one_of_each,
    rank_files,
    rank_in_name,
    told_world_size,
)

_NAMED = 8
_ALL_RANKS = ", or replay all ranks: torchrun --nproc-per-node {} -m et_replay"


class Named(NamedTuple):
    """A file to read, the process of a captured run that it is of, and the rank of a job's many."""

    path: str
    run: CapturedRun | None = None
    rank: int | None = None


def expand(paths: Sequence[str], *, traces: bool = False) -> list[Named]:
    """List the inputs: a folder stands for what can be read of the files in it, by name or rank.

    A path with {rank} stands for the files of all ranks of a job. The folder of a captured run
    stands for one file of each process: the memory snapshot, else the execution trace, or with
    `traces` the other way round. Raises TraceError where one of a job's ranks is missing.
    """
    files: list[Named] = []
    for path in paths:
        if runs := runs_at(path):
            found = _of_runs(path, runs, traces)
            files += _of_all_ranks(path, found, runs) if is_folder(Path(path)) else found
        elif path != "-" and is_folder(Path(path)):
            files += _of_folder(path)
        elif is_pattern(path):
            found = [
                Named(str(file), run_that_wrote(file), rank)
                for rank, file in rank_files(path).items()
            ]
            files += _of_all_ranks(path, found)
        else:
            files.append(Named(path, run_that_wrote(path)))
    return files


def expand_to_one(path: str) -> Named:
    """Return the file to read of a captured run, its execution trace if it has one, or `path`."""
    runs = runs_at(path)
    found = _of_runs(path, runs, traces=True) if runs else [Named(path, run_that_wrote(path))]
    if len(found) > 1:
        raise UsageError(
            f"{path} is a run of {len(found)} processes, expected one: {_ways_to_one(path, found)}."
        )
    if not runs and path != "-" and is_folder(Path(path)):
        raise UsageError(
            f"{path} is a folder, expected one trace: {_ways_to_one(path, _of_folder(path))}."
        )
    return found[0]


def _ways_to_one(path: str, found: Sequence[Named]) -> str:
    """Say what to give in the place of a folder: all ranks only where its files are a job's."""
    names = file_names([named.path for named in found])
    one = f"give one file of {names}" if len(found) > 1 else f"give its file {names}"
    try:
        ranks = rank_files(path)
    except TraceError:
        ranks = {}
    is_job = len(ranks) > 1 and {sniff(file) for file in ranks.values()} == {Kind.EXECUTION_TRACE}
    return one + (_ALL_RANKS.format(len(ranks)) if is_job else "")


def file_names(paths: Sequence[str | Path]) -> str:
    """List the first few names of files, without their folders."""
    more = [f"{len(paths) - _NAMED} more"] if len(paths) > _NAMED else []
    return ", ".join([*(Path(path).name for path in paths[:_NAMED]), *more])


def runs_at(path: str) -> list[CapturedRun]:
    """Read the captured run in a folder, or what one process of it told; none at other paths."""
    if path != "-" and is_folder(Path(path)):
        return captured_runs(path)
    return [read_captured_run(path)] if path.endswith(RUN_SUFFIX) else []


def _of_folder(path: str) -> list[Named]:
    """List the recordings in a folder, by the ranks in their names if they are of several.

    Raises TraceError where one of these ranks is missing or has two files. One whose file cannot be
    read is listed, for reading it to say why.
    """
    files = [file for file in sorted(Path(path).iterdir()) if file.is_file()]
    found = [file for file in files if _is_recording(file)]
    if not found:
        raise UsageError(f"The folder {path} holds no trace and no memory history.")
    ranks = {file: rank_in_name(file.name) for file in files}
    known = {ranks[file] for file in found}
    if None not in known:
        endings = {ending for file in found for ending in file.suffixes}
        found += [
            file
            for file in files
            if endings.intersection(file.suffixes) and ranks[file] not in (None, *known)
        ]
    known = {ranks[file] for file in found}
    if None in known or len(known) < 2:
        return [Named(str(file)) for file in found]
    return _of_all_ranks(path, [Named(str(file), rank=ranks[file]) for file in found])


def _of_all_ranks(
    path: str, found: Sequence[Named], runs: Sequence[CapturedRun] = ()
) -> list[Named]:
    """Sort the files of a job by rank; processes that are no ranks of one stay as they are.

    Raises TraceError where a rank is missing, by what the runs, or else a trace, tell.
    """
    named = {Path(each.path): each for each in found}
    ranks = [(each.rank, file) for file, each in named.items() if each.rank is not None]
    if not ranks:
        return list(found)
    world_size = _world_size(runs) if runs else told_world_size(ranks[0][1], ranks[0][0])
    return [named[file] for file in one_of_each(path, ranks, world_size).values()]


def _world_size(runs: Sequence[CapturedRun]) -> int:
    return max(run.header.world_size for run in runs)


def _of_runs(path: str, runs: Sequence[CapturedRun], traces: bool) -> list[Named]:
    is_job = _world_size(runs) > 1
    found = [
        Named(str(file), run, run.header.rank if is_job else None)
        for run in runs
        if (file := (run.trace or run.snapshot) if traces else (run.snapshot or run.trace))
    ]
    if not found:
        reasons = dict.fromkeys(map(shortcoming, runs))
        raise UsageError(
            f"The captured run {path} has neither a memory snapshot nor an execution trace:"
            f" {next(filter(None, reasons), 'its files are gone.')}"
        )
    return found


def is_folder(path: Path) -> bool:
    """Tell whether there is such a folder."""
    try:
        return path.is_dir()
    except OSError:  # such as a name that is too long, which reading or writing will tell
        return False


def _is_recording(file: Path) -> bool:
    try:
        return file.is_file() and sniff(file) is not None
    except TraceError:
        return False
