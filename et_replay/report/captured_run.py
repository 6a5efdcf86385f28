"""What the processes of a captured run told of themselves in; text and JSON objects out."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Iterator

from et_replay.formats.captured_endings import signal_name
from et_replay.formats.captured_run import CapturedRun
from et_replay.report.document import JsonObject
from et_replay.report.table import fields
from et_replay.script.iterations import without_number
from et_replay.units import format_bytes, format_duration


def run_text(run: CapturedRun) -> str:
    """Write what ran, how far it came and which files tell more."""
    return fields(_summary(run))


def run_object(run: CapturedRun) -> JsonObject:
    """Give a captured run its JSON form."""
    header = run.header
    return {
        "run": run.source,
        "words": list(header.words),
        "rank": header.rank,
        "world_size": header.world_size,
        "pid": header.pid,
        "torch": header.torch,
        "python": header.python,
        "device": header.device,
        "device_memory_bytes": header.device_memory_bytes,
        "allocator_settings": header.allocator_settings,
        "window": {"skip": header.skip, "iterations": header.iterations},
        "mark": header.mark,
        "iterations": [
            {
                "iteration": each.iteration,
                "by": each.by,
                "duration_ns": each.duration_ns,
                "recorded": each.recorded,
                "peak_allocated_bytes": each.peak_allocated_bytes,
                "peak_reserved_bytes": each.peak_reserved_bytes,
            }
            for each in run.iterations
        ],
        "execution_trace": None if run.trace is None else str(run.trace),
        "memory_snapshot": None if run.snapshot is None else str(run.snapshot),
        "failures": list(run.failures),
        "end": run.end,
        "error": run.error or None,
        "exit_status": run.status,
        "notes": list(run.notes),
    }


def _summary(run: CapturedRun) -> Iterator[tuple[str, str]]:
    header = run.header
    yield "Run", run.source
    yield "Command", shlex.join(header.words) or "not known"
    yield "Process", f"rank {header.rank} of {header.world_size}, pid {header.pid}"
    yield "Versions", f"torch {header.torch}, Python {header.python}"
    memory = header.device_memory_bytes
    device = header.device or "none used"
    yield "Device", f"{device}, {format_bytes(memory)}" if memory else device
    yield "Allocator", header.allocator_settings or "default settings"
    yield "Iterations", "\n".join(_iterations(run))
    if peaks := _peaks(run):
        yield "Peak", peaks
    files = (("execution trace", run.trace), ("memory snapshot", run.snapshot))
    names = [f"{file.name} ({what})" for what, file in files if file is not None]
    yield "Files", ", ".join(names) or "none"
    for failure in run.failures:
        if failure != run.error:  # with which it ended
            yield "Failed", failure
    yield "End", _end(run)


def _end(run: CapturedRun) -> str:
    if not run.end and run.status is None:
        return "none: the process was killed, or still runs"
    how = f"{run.end or 'none'}{f': {run.error}' if run.error else ''}"
    if run.status is None:
        return how
    code = f"exit code {run.status}" if run.status >= 0 else f"by {signal_name(-run.status)}"
    return f"{how} ({code})"


def _iterations(run: CapturedRun) -> Iterator[str]:
    header = run.header
    ends = Counter(without_number(each.by) for each in run.iterations)
    told = ", ".join(f"{count} by {by}" for by, count in ends.items() if by)
    yield f"{run.ended} ended{f': {told}' if told else ''}"
    recorded = [each for each in run.iterations if each.recorded]
    yield (
        f"{len(recorded)} of {header.iterations} recorded, after {header.skip} that were skipped"
    )
    later = [each.duration_ns for each in run.iterations if not each.recorded and each.iteration]
    if later:
        median = format_duration(statistics.median(later))
        which = f"{len(later)} that {'was' if len(later) == 1 else 'were'} not recorded"
        yield f"{median} each, the median of {which}"


def _peaks(run: CapturedRun) -> str:
    """Name the highest peaks of all iterations."""
    figures = {
        "allocated": [each.peak_allocated_bytes for each in run.iterations],
        "reserved": [each.peak_reserved_bytes for each in run.iterations],
    }
    known = {name: [size for size in sizes if size] for name, sizes in figures.items()}
    return ", ".join(f"{format_bytes(max(sizes))} {name}" for name, sizes in known.items() if sizes)
