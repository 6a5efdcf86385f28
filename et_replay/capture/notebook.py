"""A part of a notebook or of a script in, the files of a capture of it out, and what they lack."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from et_replay.capture.recorder import Recorder, Settings
from et_replay.captured_files import (
    RUN,
    captured_file,
    captured_files,
    end_replacing,
    folder_to_capture,
)
from et_replay.errors import EtReplayError, UsageError
from et_replay.script.iterations import is_watched
from et_replay.script.on_torch import VARIABLE
from et_replay.script.rank import rank_of_process
from et_replay.script.telling import tell


@contextmanager
def capture(
    output: str | os.PathLike[str],
    *,
    skip: int = 2,
    iterations: int = 3,
    mark: str | None = None,
    force: bool = False,
) -> Iterator[None]:
    """Capture what happens within, in a notebook or a script of one's own.

    Writes the files of `et_replay capture` to the folder `output`, and over those of another
    capture only by `force`; names them at the end, and warns of what they lack. Raises UsageError
    where that cannot be. In a script that a command of et_replay runs, it warns and does no more.
    """
    if skip < 0 or iterations < 1:
        raise UsageError(f"Expected skip >= 0 and iterations >= 1, got {skip} and {iterations}.")
    if mark == "":
        raise UsageError("Expected a name for mark=, got ''; without it iterations are found.")
    if is_watched():
        if not os.environ.get(VARIABLE):
            raise UsageError("This process is captured already.")
        warnings.warn(
            f"{output} is not written: et_replay follows this script already.", stacklevel=3
        )
        yield
        return
    with folder_to_capture(Path(output), force, "force=True") as folder:
        recorder = Recorder(Settings(folder, skip, iterations, mark, tuple(sys.orig_argv)))
        recorder.begin()
        process = os.getpid()
        try:
            yield
        except BaseException as error:
            recorder.failed(error)
            recorder.finish("exception")
            raise
        else:
            recorder.finish("exit")
        finally:
            if os.getpid() == process:  # and not a fork of it
                _tell_files(folder)


def _tell_files(folder: Path) -> None:
    """Say what this process wrote, and warn of what it did not."""
    from et_replay.formats.captured_endings import shortcoming  # needs what a script need not have
    from et_replay.formats.captured_run import read_captured_run

    rank = rank_of_process()
    files = captured_files(folder, rank)
    wrote = f"wrote {', '.join(map(str, files))}"
    run = captured_file(folder, rank, RUN)
    try:
        lack = shortcoming(read_captured_run(run), in_python=True)
    except EtReplayError as error:
        lack = str(error)
    if end_replacing(folder):
        wrote = f"the captured run that was in {folder} is still there"
    tell(wrote)
    if lack is not None:
        warnings.warn(f"{run.name}: {lack}", stacklevel=4)
