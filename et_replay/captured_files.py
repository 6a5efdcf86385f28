"""The folder of a captured run in, the names of its files out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from et_replay.errors import UsageError

RUN, TRACE, SNAPSHOT, PLAN = "run.jsonl", "et.json", "snapshot.pickle", "plan.json"
RESOURCES = "et_resources"  # as the observer calls the folder beside a trace in et.json


def captured_file(folder: Path, rank: int, kind: str) -> Path:
    """Name the file of one kind of one rank."""
    return folder / f"rank-{rank}.{kind}"


def captured_files(folder: Path, rank: int | str = "*") -> list[Path]:
    """List what is there of a rank, or of all."""
    kinds = (RUN, TRACE, SNAPSHOT, RESOURCES)
    return sorted(path for kind in kinds for path in folder.glob(f"rank-{rank}.{kind}"))


def prepare_folder(folder: Path, force: bool) -> Path:
    """Make the folder of a capture, without files of another one; return its absolute name.

    Those are removed only by `force`. Raises UsageError where that cannot be.
    """
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = captured_files(folder)
        if files and not force:
            raise UsageError(f"{folder} holds a captured run already; --force overwrites it.")
        for path in files:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written: the folder is not writable.")
    return folder
