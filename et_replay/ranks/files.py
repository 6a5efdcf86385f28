"""A folder of a job's traces, or a pattern with {rank}, in; the file of each rank out.

These names are known, each also compressed (.gz, .xz, .zst):

    rank-0.json, rank0.json, execution_trace_rank0.json, rank-0.et.json   the word rank
    job.0.et                                                              Chakra's files
    et_0.json, execution_trace_0.json, worker0.et.json                    one number that varies

Where names do not tell the ranks, the traces do.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from glob import escape, glob
from pathlib import Path

from et_replay.errors import TraceError, UsageError
from et_replay.formats import Kind, open_trace, sniff
from et_replay.formats.captured_run import captured_runs
from et_replay.ranks.groups import named_ranks, process_groups
from et_replay.ranks.own_rank import told_rank

RANK = "{rank}"
"""What stands for the rank in a pattern."""
_TRACE = re.compile(r".+(\.json|\.et)(\.gz|\.xz|\.zst)?", re.IGNORECASE)
_BY_WORD = re.compile(r"(?:.*[^a-z])?rank[-_.]?(\d{1,6})(?!\d).*", re.IGNORECASE)
_BY_CHAKRA = re.compile(r".*\.(\d{1,6})\.et(?:\.gz|\.xz|\.zst)?", re.IGNORECASE)
_FEW_MISSING = 4
"""How many times as many ranks as files there may be for a number still to be the rank."""
_NUMBER = re.compile(r"(\d+)")


def missing_ranks(
    where: str,
    ranks: Collection[int],
    world_size: int,
    way_out: str = ", but all are needed; --trace FILE takes one rank alone",
) -> str:
    """Say in a sentence which ranks of a job have no file in `where`, "" where all have one."""
    missing = [rank for rank in range(world_size) if rank not in ranks]
    if not missing:
        return ""
    return (
        f"{where} has {named_ranks(sorted(ranks))} of {world_size}: {named_ranks(missing)}"
        f" {'is' if len(missing) == 1 else 'are'} missing{way_out}."
    )


def told_world_size(file: Path, rank: int) -> int:
    """Return how many ranks there are at least, by the trace of one; 0 of what tells none."""
    try:
        is_trace = sniff(file) is Kind.EXECUTION_TRACE
        return (process_groups(open_trace(file), rank).world_size or 0) if is_trace else 0
    except TraceError:  # which reading it in earnest will tell
        return 0


def is_pattern(path: str) -> bool:
    """Tell whether a path names the files of several ranks."""
    return RANK in path


def rank_in_name(name: str) -> int | None:
    """Return the rank that a file's name tells by itself, None where it tells none."""
    found = _BY_WORD.fullmatch(name) or _BY_CHAKRA.fullmatch(name)
    return None if found is None else int(found[1])


def rank_files(path: str) -> dict[int, Path]:
    """List the execution traces of all ranks of a job, by rank.

    Raises TraceError where a rank is missing or has two files, where nothing tells of which rank a
    file is, and where there is no file at all; UsageError where there is no such folder.
    """
    found, world_size = _found(path)
    if not found:
        raise TraceError(f"{path} has no execution trace, expected one of each rank.")
    return one_of_each(path, _without_others(found), world_size)


def one_of_each(
    path: str, found: Iterable[tuple[int, Path]], world_size: int = 0
) -> dict[int, Path]:
    """List the files that were found in `path` by rank, of `world_size` ranks at least.

    Raises TraceError where a rank is missing or has two.
    """
    files: dict[int, Path] = {}
    for rank, file in sorted(found):
        if rank in files:
            raise TraceError(
                f"{path} has two files of rank {rank}, {files[rank].name} and {file.name}:"
                f" {_way_to_one(path, files[rank].name, file.name)}."
            )
        files[rank] = file
    last = max(files)
    if missing_ranks(path, files, max(world_size, last + 1)):
        told = told_world_size(files[last], last)
        raise TraceError(missing_ranks(path, files, max(world_size, last + 1, told)))
    return files


def _way_to_one(path: str, *names: str) -> str:
    """Say how to choose one of a rank's files; a pattern fits both if zeros tell them apart."""
    forms = {_NUMBER.sub(lambda found: str(int(found[1])), name) for name in names}
    if is_pattern(path) or len(forms) == 1:
        return "move one of them to another folder"
    return f"a path with {RANK} in the place of the rank chooses one"


def _found(path: str) -> tuple[list[tuple[int, Path]], int]:
    """Return the files with their ranks, and how many ranks there are at least."""
    if is_pattern(path):
        return _of_pattern(path), 0
    folder = Path(path)
    if not folder.is_dir():
        raise UsageError(f"{path} is no folder, expected that of the traces of all ranks.")
    runs = captured_runs(folder)
    if not runs:
        return _of_folder(folder), 0
    traces = [(run.header.rank, run.trace) for run in runs if run.trace is not None]
    return traces, max(run.header.world_size for run in runs)


def _of_pattern(pattern: str) -> list[tuple[int, Path]]:
    """Find the files whose names a pattern fits, with the same number wherever it says so."""
    first, *rest = pattern.split(RANK)
    fits = re.compile(re.escape(first) + r"(\d{1,6})" + r"\1".join(map(re.escape, rest)))
    names = glob("*".join(map(escape, (first, *rest))))
    return [(int(found[1]), Path(name)) for name in names if (found := fits.fullmatch(name))]


def _of_folder(folder: Path) -> list[tuple[int, Path]]:
    files = [file for file in sorted(folder.iterdir()) if _TRACE.fullmatch(file.name)]
    for named in (_BY_WORD, _BY_CHAKRA):
        found = [(named.fullmatch(file.name), file) for file in files]
        ranks = [(int(match[1]), file) for match, file in found if match]
        if ranks:
            return ranks
    return _by_varying_number(files) or _by_content(folder, files)


def _by_varying_number(files: Sequence[Path]) -> list[tuple[int, Path]]:
    """Take names that differ in one number alone, or in one that counts from 0 without a gap.

    A name of another form with a single number, one of these, is that of a second file of a rank.
    """
    alike: dict[str, list[tuple[list[int], Path]]] = defaultdict(list)
    for file in files:
        numbers = [int(number) for number in _NUMBER.findall(file.name)]
        alike[_NUMBER.sub("#", file.name)].append((numbers, file))
    most = max(alike.values(), key=len, default=[])
    columns = list(zip(*(numbers for numbers, _ in most), strict=True)) if len(most) > 1 else []
    varying = [k for k, column in enumerate(columns) if len(set(column)) > 1]
    counting = [k for k in varying if sorted(columns[k]) == list(range(len(most)))]
    chosen = varying if len(varying) == 1 else counting
    if len(chosen) == 1 and max(columns[chosen[0]]) > _FEW_MISSING * len(most):
        chosen = []  # numbers of processes, or of something else that does not count from 0
    if len(chosen) != 1:
        return []
    ranks = set(columns[chosen[0]])
    found = [(numbers[chosen[0]], file) for numbers, file in most]
    others = [pair for form in alike.values() if form is not most for pair in form]
    second = [(numbers[0], file) for numbers, file in others if len(numbers) == 1]
    return [*found, *((rank, file) for rank, file in second if rank in ranks)]


def _by_content(folder: Path, files: Iterable[Path]) -> list[tuple[int, Path]]:
    """Ask the traces; a single one that does not tell is that of rank 0."""
    traces = [file for file in files if _is_trace(file)]
    found = [(told_rank(open_trace(file)), file) for file in traces]
    if len(found) == 1:
        return [(found[0][0] or 0, found[0][1])]
    for rank, file in found:
        if rank is None:
            raise TraceError(
                f"Neither its name nor what is in it tells of which rank {file.name} in {folder}"
                f" is, expected names such as rank-0.json, or a path such as job_{RANK}.json."
            )
    return [(rank, file) for rank, file in found if rank is not None]


def _without_others(found: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """Of ranks with several files, leave out those that hold another thing than such a trace."""
    times = Counter(rank for rank, _ in found)
    return [(rank, file) for rank, file in found if times[rank] == 1 or _is_trace(file)]


def _is_trace(file: Path) -> bool:
    try:
        return sniff(file) is Kind.EXECUTION_TRACE
    except TraceError:
        return False
