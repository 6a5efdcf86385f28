"""Captured runs: `rank-R.run.jsonl` goes in, what a process did and which files tell more out.

A line is written as it happens, so that of a killed process all but the last one are whole:

    {"et_replay_run": 1, "rank": 0, "world_size": 2, "words": ["train.py"], "torch": "2.11.0", ...}
    {"iteration": 0, "by": "optimizer step", "begin_time_us": ..., "end_time_us": ..., ...}
    {"torch_settings": {"float32_matmul_precision": "high", ...}}
    {"wrote": "rank-0.snapshot.pickle", "what": "memory snapshot"}
    {"failed": "torch.OutOfMemoryError: ...", "time_us": ...}
    {"end": "exception", "error": "torch.OutOfMemoryError: ...", "time_us": ..., "exit_status": 1}

The exit status is from the command, for the process that it started itself. Of one that has told no
end it is a line of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from et_replay.captured_files import RUN, SNAPSHOT, TRACE
from et_replay.errors import TraceError
from et_replay.formats.source import read_source
from et_replay.units import counted
from et_replay.whole_files import appearing

RUN_SUFFIX = f".{RUN}"
VERSION = 1
_TRACE, _SNAPSHOT = "execution trace", "memory snapshot"
_NAMES = {_TRACE: (f".{TRACE}", f".{TRACE}.gz"), _SNAPSHOT: (f".{SNAPSHOT}",)}
"""What follows `rank-R` in the name of a file that a killed process wrote but did not tell of."""


class RunHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: what ran, and where. Sizes are bytes, times Unix microseconds."""

    et_replay_run: int
    et_replay: str = ""
    words: tuple[str, ...] = ()
    rank: int = 0
    world_size: int = 1
    pid: int = 0
    torch: str = ""
    python: str = ""
    device: str | None = None
    device_memory_bytes: int | None = None
    allocator_settings: str = ""
    skip: int = 0
    iterations: int = 0
    mark: str | None = None
    time_us: int = 0


class RunIteration(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration that ended, and `by` what that was told; the first begins with the process."""

    iteration: int
    by: str = ""
    begin_time_us: int
    end_time_us: int
    duration_ns: int = 0
    recorded: bool = False
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None


class _Settings(msgspec.Struct):
    torch_settings: Any


class _Wrote(msgspec.Struct):
    wrote: str
    what: str = ""


class _Failed(msgspec.Struct):
    failed: str
    time_us: int = 0


class _End(msgspec.Struct):
    end: str
    error: str = ""
    annotations: tuple[str, ...] = ()
    iterations: int = 0
    time_us: int = 0
    exit_status: int | None = None


class _Status(msgspec.Struct):
    exit_status: int


_LINES: dict[str, type[msgspec.Struct]] = {
    "et_replay_run": RunHeader,
    "iteration": RunIteration,
    "torch_settings": _Settings,
    "wrote": _Wrote,
    "failed": _Failed,
    "end": _End,
    "exit_status": _Status,
}


@dataclass(frozen=True)
class CapturedRun:
    """What one process of a captured run told.

    `trace` and `snapshot` are its files as far as they are there; a trace that the
    process has not told of may be cut. `ended` counts all iterations
    that ended, of which there may be more than were told. `end` is how it ended, "" where it was
    killed, and `error` the exception that it ended with. `status` is its exit code, -n where signal
    n ended it, None where that is not known. `annotations` names some that were seen where none
    was the mark asked for. `torch_settings` are those of the last iteration that was recorded, as
    they were told: see `et_replay.torch_settings`. `lost` lines could not be read. `notes` says in
    sentences what of it could not be.
    """

    source: str
    header: RunHeader
    iterations: tuple[RunIteration, ...] = ()
    ended: int = 0
    trace: Path | None = None
    told_trace: bool = False
    snapshot: Path | None = None
    failures: tuple[str, ...] = ()
    end: str = ""
    error: str = ""
    status: int | None = None
    annotations: tuple[str, ...] = ()
    torch_settings: Any = field(default_factory=dict)
    lost: int = 0
    notes: tuple[str, ...] = ()

    @property
    def marks(self) -> tuple[int, ...]:
        """When an iteration ended and the next one began, in Unix microseconds."""
        return tuple(iteration.end_time_us for iteration in self.iterations)


def captured_runs(folder: str | Path) -> list[CapturedRun]:
    """Read what all processes of a captured run told, by rank; none where it is another folder."""
    found = [read_captured_run(path) for path in sorted(Path(folder).glob(f"rank-*{RUN_SUFFIX}"))]
    return sorted(found, key=lambda run: run.header.rank)


def read_captured_run(path: str | Path) -> CapturedRun:
    """Read what one process told; raises TraceError where it is nothing of a captured run."""
    source = read_source(path)
    lines, lost = _read_lines(bytes(source.text))
    header = next((line for line in lines if isinstance(line, RunHeader)), None)
    if header is None:
        raise TraceError(
            f"{source.name} has no line of a captured run at its begin, which et_replay capture"
            " writes."
        )
    if header.et_replay_run > VERSION:
        raise TraceError(
            f"{source.name} is of version {header.et_replay_run}, expected {VERSION}: it was"
            f" written by et_replay {header.et_replay}, which is newer."
        )
    wrote = {line.what: line.wrote for line in lines if isinstance(line, _Wrote)}
    iterations = tuple(line for line in lines if isinstance(line, RunIteration))
    end = next((line for line in reversed(lines) if isinstance(line, _End)), None)
    settings = [line.torch_settings for line in lines if isinstance(line, _Settings)]
    statuses = [line.exit_status for line in lines if isinstance(line, _End | _Status)]
    return CapturedRun(
        source=source.name,
        header=header,
        iterations=iterations,
        ended=max(len(iterations), end.iterations if end else 0),
        trace=_file(Path(path), wrote.get(_TRACE), _NAMES[_TRACE]),
        told_trace=_TRACE in wrote,
        snapshot=_file(Path(path), wrote.get(_SNAPSHOT), _NAMES[_SNAPSHOT]),
        failures=tuple(line.failed for line in lines if isinstance(line, _Failed)),
        end=end.end if end else "",
        error=end.error if end else "",
        status=statuses[-1] if statuses else None,
        annotations=end.annotations if end else (),
        torch_settings=settings[-1] if settings else {},
        lost=lost,
        notes=tuple(_notes(source.damage, lost, end is not None, bool(statuses))),
    )


def run_that_wrote(file: str | Path) -> CapturedRun | None:
    """Find what the process told that wrote a file, if it lies beside it and can be read."""
    file = Path(file)
    if not file.name:  # that of a folder such as .
        return None
    told = file.with_name(f"{file.name.partition('.')[0]}{RUN_SUFFIX}")
    if told == file or not os.path.isfile(told):  # which a name that cannot be is not either
        return None
    with suppress(TraceError):
        run = read_captured_run(told)
        return run if file in (run.trace, run.snapshot) else None
    return None


def add_status(path: Path, status: int) -> None:
    """Add to the end that a process told its exit code, or -n where signal n ended it."""
    *lines, last = path.read_bytes().splitlines()
    told: dict[str, Any] = {}
    with suppress(msgspec.DecodeError):  # of a process that was killed while it wrote
        told = msgspec.json.decode(last, type=dict)
    if "end" not in told:
        lines.append(last)
        told = {}
    lines.append(msgspec.json.encode({**told, "exit_status": status}))
    with appearing(path, force=True) as partial:
        partial.write_bytes(b"".join(line + b"\n" for line in lines))


def _read_lines(text: bytes) -> tuple[list[Any], int]:
    """Return the lines that can be read, and how many cannot."""
    lines: list[Any] = []
    lost = 0
    for line in text.splitlines():
        try:
            keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            kind = next((kind for key, kind in _LINES.items() if key in keys), None)
            if kind is not None:
                lines.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, RecursionError):
            lost += bool(line.strip())
    return lines, lost


def _file(path: Path, told: str | None, names: Sequence[str]) -> Path | None:
    """Find a file beside the one at `path`: the one it tells of, or the one it would."""
    bare = path.name.removesuffix(RUN_SUFFIX)
    candidates = [*([told] if told else []), *(f"{bare}{name}" for name in names)]
    files = (path.parent / Path(name).name for name in candidates)
    return next((file for file in files if file.is_file()), None)


def _notes(damage: str, lost: int, ended: bool, over: bool) -> list[str]:
    notes = [*filter(None, [damage])]
    if lost:
        notes.append(f"{counted(lost, 'line')} of the run could not be read.")
    if not ended:
        or_else = "ended at once, without Python's own end" if over else "still runs"
        notes.append(f"The run has no end: its process was killed, or {or_else}.")
    return notes
