"""A captured run in; how it ended, and what it lacks of what was asked for and why, out."""

from __future__ import annotations

import signal

from et_replay.formats.captured_run import CapturedRun
from et_replay.units import counted


def signal_name(number: int) -> str:
    """Name a signal, such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of real time
        return f"signal {number}"


def shortcoming(run: CapturedRun, in_python: bool = False) -> str | None:
    """Say in a sentence what a run lacks of what was asked for, why, and the way out.

    Options are named as on the command line, or `in_python` as arguments of a call.
    """
    skip, ended = run.header.skip, counted(run.ended, "iteration")
    how = _ending(run)
    if run.ended == 0:
        mark = _missed_mark(run, in_python)
        if how != _AS_ASKED:
            return f"{how} before its first iteration ended{f'; {mark}' if mark else ''}."
        return f"no iteration ended; {mark or _way_to_iterations(in_python)}."
    if run.ended <= skip:
        why = "" if how == _AS_ASKED else f" before {how}"
        return (
            f"{ended} ended{why}, and {_option('skip', skip, in_python)} let all of them pass;"
            f" {_option('skip', run.ended - 1, in_python)} records the last."
        )
    if run.trace is None:
        return f"{how} after {ended}, and wrote no execution trace."
    if not run.told_trace:
        return f"{how} before its execution trace was closed; what there is of it can be read."
    if run.ended < skip + run.header.iterations:
        return f"{how} after {counted(run.ended - skip, 'recorded iteration')}."
    return None


def _option(name: str, value: object, in_python: bool) -> str:
    return f"{name}={value!r}" if in_python else f"--{name} {value}"


_AS_ASKED = "the script ended"


def _ending(run: CapturedRun) -> str:
    """Say who ended how."""
    if run.end.startswith("signal "):
        return f"the process was stopped by {signal_name(int(run.end.split()[1]))}"
    if not run.end:
        return _abrupt_ending(run.status)
    why = (run.error or next(reversed(run.failures), "")).partition(". ")[0].rstrip(".")
    if run.end == "exception":
        what = "was interrupted" if why.startswith("KeyboardInterrupt") else "failed"
        return f"the script {what} ({why})" if why else f"the script {what}"
    code = f" with exit code {run.status}" if run.status else ""
    return f"{_AS_ASKED}{code}{f' ({why})' if why else ''}"


def _abrupt_ending(status: int | None) -> str:
    if status is None:
        return "the process was killed, or ended without Python's own end (as by os._exit),"
    if status < 0:
        return f"the process was killed by {signal_name(-status)}"
    return f"the process ended with exit code {status}, without Python's own end (as by os._exit),"


def _missed_mark(run: CapturedRun, in_python: bool) -> str:
    """Say that no annotation was the one asked for; "" where none was, or it is not known."""
    mark = run.header.mark
    if mark is None or not run.end:
        return ""
    seen = f"those seen are {', '.join(run.annotations)}" if run.annotations else "none was seen"
    option = _option("mark", mark, in_python)
    return f"no torch.profiler.record_function has the name of {option}: {seen}"


def _way_to_iterations(in_python: bool) -> str:
    option = "mark=" if in_python else "--mark"
    return (
        f"name a torch.profiler.record_function that encloses one by {option}, or call"
        " et_replay.capture.mark_iteration() at the end of each"
    )
