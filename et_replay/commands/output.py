"""Results in, streams and files out: the result on stdout, warnings and progress on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from et_replay.errors import EtReplayError, UsageError
from et_replay.report.table import printable
from et_replay.whole_files import appearing

STDOUT = "-"


def check_destination(
    destination: str | None, force: bool, source: str, flag: str = "--json"
) -> None:
    """Raise UsageError if `destination` cannot be written: now, not after the work is done.

    The input `source` is never overwritten, whatever `force` says.
    """
    if destination is None or (destination == STDOUT and flag == "--json"):
        return
    if destination == STDOUT:
        raise UsageError(f"{flag} - is no file; only --json writes to stdout.")
    try:
        _check_path(Path(destination), force, source, flag)
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{flag} {destination} cannot be written: {reason}.") from error


def check_distinct(destinations: Iterable[tuple[str, str | None]]) -> None:
    """Raise UsageError if two flags, each with its destination, name the same file."""
    taken: dict[Path, str] = {}
    for flag, destination in destinations:
        if destination is None or destination == STDOUT:
            continue
        other = taken.setdefault(Path(destination).resolve(), flag)
        if other != flag:
            raise UsageError(f"{other} and {flag} both name {destination}, expected two files.")


def _check_path(path: Path, force: bool, source: str, flag: str) -> None:
    named = f"{flag} {path}"
    if path.exists() and not path.is_file():
        way_out = "; - is stdout" if flag == "--json" else ""
        raise UsageError(f"{named} is not a regular file{way_out}.")
    if path.exists() and os.path.exists(source) and path.samefile(source):
        raise UsageError(f"{named} is the input, which is never overwritten.")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; --force overwrites it.")
    # "new/.." is no folder either where there is no "new", whatever the name comes to
    folder = path.resolve().parent if path.parent.is_dir() else path.parent.absolute()
    if not folder.is_dir():
        raise UsageError(f"{named}: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{named}: the folder {folder} is not writable.")


def write_result(text: str, document: str, destination: str | None, force: bool) -> None:
    """Print `text` for a person, and write `document` to where --json says, if it says so."""
    if destination == STDOUT:
        _print(document)
        return
    if destination is not None:
        write_whole(Path(destination), document.encode(), force)
    # A file's name may hold what stdout cannot.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    _print(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _print(text: str) -> None:
    """Write the result to stdout; that its reader has left is no failure."""
    if sys.stdout is None:
        raise EtReplayError("Cannot write to stdout: it is closed.")
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # Python flushes stdout once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise EtReplayError(f"Cannot write to stdout: {error.strerror}.") from error


def write_whole(path: Path, content: bytes, force: bool) -> None:
    """Write a file that appears complete or not at all, and over another one only by `force`."""
    with appearing(path, force) as partial:
        try:
            partial.write_bytes(content)
        except OSError as error:
            raise EtReplayError(f"Cannot write {path}: {error.strerror}.") from error


def warn(notes: Iterable[str], quiet: bool) -> None:
    """Print `notes` on stderr, one line each, unless `quiet`."""
    if quiet:
        return
    for note in notes:
        say(f"warning: {note}")


def say(text: str) -> None:
    """Print a line on stderr, if there is one."""
    if sys.stderr is not None:
        print(printable(text), file=sys.stderr)


@contextmanager
def progress_bar(quiet: bool, unit: str = "operations") -> Iterator[Callable[[int, int], None]]:
    """Show progress on a terminal; what is yielded is to be called with (done, total)."""
    from tqdm import tqdm

    hidden = True if quiet or sys.stderr is None else None
    with tqdm(unit=f" {unit}", leave=False, disable=hidden) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
