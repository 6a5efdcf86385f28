"""The folder of a captured run in, the names of its files out."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from et_replay.errors import UsageError
from et_replay.whole_files import folder_to_fill

RUN, TRACE, SNAPSHOT, PLAN = "run.jsonl", "et.json", "snapshot.pickle", "plan.json"
RESOURCES = "et_resources"  # as the observer calls the folder beside a trace in et.json
_ITERATION = re.compile(rb'"recorded": ?true')
"""In the line of an iteration that was recorded from its begin to its end."""
_REPLACED = ".replaced"
"""Where the files of an earlier run wait for what takes their place."""


def captured_file(folder: Path, rank: int | str, kind: str) -> Path:
    """Name the file of one kind of one rank, or the pattern of all."""
    return folder / f"rank-{rank}.{kind}"


def captured_files(folder: Path, rank: int | str = "*") -> list[Path]:
    """List what is there of a rank, or of all."""
    kinds = (RUN, TRACE, SNAPSHOT, RESOURCES)
    return sorted(path for kind in kinds for path in folder.glob(f"rank-{rank}.{kind}"))


@contextmanager
def folder_to_capture(folder: Path, force: bool, option: str = "--force") -> Iterator[Path]:
    """Make the folder of a capture, without files of another one; give its absolute name.

    `option` is how the user says `force`. By that the files of another run are set aside, and
    `end_replacing` decides in the end. Raises UsageError where that cannot be.
    """
    folder = folder.absolute()
    with folder_to_fill(folder):
        _set_aside(folder, force, option)
        process = os.getpid()
        try:
            yield folder
        finally:
            if os.getpid() == process:
                end_replacing(folder)


def _set_aside(folder: Path, force: bool, option: str) -> None:
    try:
        end_replacing(folder)  # of a capture that was killed
        files = captured_files(folder)
        if files and not force:
            raise UsageError(f"{folder} holds a captured run already; {option} overwrites it.")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"{folder} cannot be written: the folder is not writable.")
        _move(files, folder / _REPLACED)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from error


def end_replacing(folder: Path) -> bool:
    """Keep the new files or the ones that were set aside; tell whether these came back.

    They do if they hold a snapshot or recorded iterations and the new ones do not.
    """
    aside = folder / _REPLACED
    if not aside.is_dir():
        return False
    files, before = captured_files(folder), list(aside.iterdir())
    comes_back = not files or (_recorded(before) and not _recorded(files))
    if comes_back:
        remove(files)
        _move(before, folder)
    shutil.rmtree(aside)
    return comes_back


def _recorded(files: list[Path]) -> bool:
    """Tell whether there is what a capture is for; a trace that was only opened is not."""
    has_trace = any(path.name.endswith(f".{TRACE}") and path.stat().st_size for path in files)
    return any(
        (path.name.endswith(f".{SNAPSHOT}") and path.stat().st_size > 0)
        or (has_trace and path.name.endswith(f".{RUN}") and _ITERATION.search(path.read_bytes()))
        for path in files
    )


def remove(files: list[Path]) -> None:
    """Remove files and folders of a captured run."""
    for path in files:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _move(files: list[Path], folder: Path) -> None:
    for path in files:
        folder.mkdir(exist_ok=True)
        path.rename(folder / path.name)
