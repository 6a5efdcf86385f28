"""The name of a file or a folder in, what to write to until it is whole out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from et_replay.errors import EtReplayError, UsageError


@contextmanager
def appearing(path: Path, force: bool) -> Iterator[Path]:
    """Give a name beside `path` with the same endings; what is there in the end becomes `path`.

    So a file appears complete or not at all, and over another one only by `force`.
    """
    target = path.resolve()
    partial = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield partial
        if partial.exists():
            _publish(partial, target, path, force)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def folder_to_fill(path: Path) -> Iterator[None]:
    """Make a folder, and those above it; those made here that are empty in the end go again.

    Raises UsageError where it cannot be made.
    """
    process = os.getpid()
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made a folder: {error.strerror}.") from error
    try:
        yield
    finally:
        for folder in made if os.getpid() == process else ():  # and not a fork of it
            with suppress(OSError):  # it holds something
                folder.rmdir()


def _publish(partial: Path, target: Path, path: Path, force: bool) -> None:
    try:
        if force:
            partial.replace(target)
        else:
            os.link(partial, target)
    except FileExistsError as error:
        raise UsageError(f"{path} exists by now; --force overwrites it.") from error
    except OSError as error:
        raise EtReplayError(f"Cannot write {path}: {error.strerror}.") from error
