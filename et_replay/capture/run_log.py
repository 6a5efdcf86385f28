"""What happens in a run in, its lines in `rank-R.run.jsonl` out, each there as it happens.

Several processes of a script import torch, and only one of them is a rank: launchers, workers that
load data, and compilers do as well. A process has the files of its rank if nobody has better
reason to: most has who has ended an iteration, then who knows its rank.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from et_replay.captured_files import RUN, captured_file, captured_files, remove
from et_replay.script.rank import BY_DEFAULT, BY_ENVIRONMENT, BY_TORCH, find_rank

Entry = Mapping[str, object]

_KNOWN_BY = (BY_DEFAULT, BY_ENVIRONMENT, BY_TORCH)
_Claim = tuple[bool, int]


class RunLog:
    """Writes the lines of this process, where it has its rank's files; keeps them until then."""

    def __init__(self, folder: Path, facts: Entry) -> None:
        self.facts = dict(facts)
        self._folder = folder
        self._entries: list[Entry] | None = []  # None: no more is to be kept
        self._file = -1
        self._rank = find_rank()
        self.settle()

    @property
    def closed(self) -> bool:
        """Whether no more is written."""
        return self._file < 0 and self._entries is None

    @property
    def settled(self) -> bool:
        """Whether the files of its rank are this process's for good."""
        return self._entries is None

    def path(self, kind: str) -> Path | None:
        """Name this process's file of a kind; None while the files are another process's."""
        path = captured_file(self._folder, self._rank.rank, kind)
        return path if self._owns(captured_file(self._folder, self._rank.rank, RUN)) else None

    def write(self, entry: Entry) -> None:
        """Write a line, now."""
        if self._entries is not None:
            self._entries.append(entry)
        if self._file >= 0:
            os.write(self._file, _line(entry))

    def settle(self, facts: Entry | None = None) -> bool:
        """Take the files of this process's rank, as far as is known now, if it may.

        `facts` are those of the first line that are known by now. Returns whether it has them.
        """
        self.facts |= facts or {}
        rank = find_rank()
        with _locked(self._folder):
            before = captured_file(self._folder, self._rank.rank, RUN)
            if rank.rank != self._rank.rank and self._owns(before):
                self._remove(self._rank.rank)
            self._rank = rank
            claim = (_trains(self._entries or ()), _KNOWN_BY.index(rank.known_by))
            path = captured_file(self._folder, rank.rank, RUN)
            if not self._owns(path):
                if _claim(path) >= claim:
                    return False
                self._remove(rank.rank)
            self._publish(path)
        if claim[0]:
            self._entries = None
        return True

    def holder(self) -> Entry:
        """Return the first line of whichever process has the files of this one's rank."""
        return next(iter(_read(captured_file(self._folder, self._rank.rank, RUN))), {})

    def close(self) -> None:
        """Write no more."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._entries = None

    def _publish(self, path: Path) -> None:
        """Let all lines so far appear at once, and write further ones after them."""
        rank = asdict(self._rank)
        first = {**self.facts, **{_RANK_KEYS[name]: value for name, value in rank.items()}}
        partial = path.with_name(f".{os.getpid()}.{path.name}")
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
        os.write(file, b"".join(_line(entry) for entry in (first, *(self._entries or ()))))
        os.replace(partial, path)
        if self._file >= 0:
            os.close(self._file)
        self._file = file

    def _owns(self, path: Path) -> bool:
        if self._file < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), path.stat())
        except OSError:
            return False

    def _remove(self, rank: int) -> None:
        for path in captured_files(self._folder, rank):
            with suppress(OSError):
                remove([path])


_RANK_KEYS = {"rank": "rank", "world_size": "world_size", "known_by": "rank_known_by"}


def _line(entry: Entry) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _trains(entries: Iterable[Entry]) -> bool:
    """Tell whether a process has ended an iteration, which only that of a rank does."""
    return any("iteration" in entry for entry in entries)


def _claim(path: Path) -> _Claim:
    """Say how good a reason the process that wrote `path` has to; a missing file has the least."""
    entries = _read(path)
    trains = _trains(entries)
    if not entries or ("end" in entries[-1] and not trains):
        return False, -1
    return trains, _KNOWN_BY.index(str(entries[0]["rank_known_by"]))


def _read(path: Path) -> list[Entry]:
    """Read the lines of a process; none where it has no file."""
    entries = []
    with suppress(OSError):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError):  # the last line of a process that was killed
                entries.append(json.loads(line))
    return entries


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes of the run out, where the file system can."""
    file = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
