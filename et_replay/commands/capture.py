"""`et_replay capture`: the words of a command in, that command run and files about its run out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from et_replay.captured_files import (
    RUN,
    captured_file,
    captured_files,
    end_replacing,
    folder_to_capture,
)
from et_replay.commands import argument_types, options
from et_replay.commands.output import say
from et_replay.formats.captured_endings import shortcoming, signal_name
from et_replay.formats.captured_run import CapturedRun, add_status, captured_runs
from et_replay.script.launch import Ended, command_of, run_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a capture."""
    parser.add_argument(
        "--output",
        type=argument_types.path,
        metavar="DIR",
        required=True,
        help="the folder to write to: for each rank R rank-R.run.jsonl, rank-R.et.json (execution "
        "trace) and on cuda rank-R.snapshot.pickle (memory snapshot with full history)",
    )
    parser.add_argument(
        "--skip",
        type=argument_types.integer(0),
        default=2,
        metavar="N",
        help="iterations to let pass before the execution trace begins (default: 2); a script of "
        "two iterations or fewer needs a smaller one",
    )
    parser.add_argument(
        "--iterations",
        type=argument_types.integer(1),
        default=3,
        metavar="N",
        help="iterations to record (default: 3)",
    )
    options.add_mark(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="remove the files of another captured run in DIR, once a trace or a snapshot of this "
        "one is there",
    )
    parser.add_argument("--quiet", action="store_true", help="no summary and no warnings")
    options.add_script(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run a script as it is, and write its execution trace, memory snapshot and iteration marks."""
    command_of(arguments.script)
    with folder_to_capture(Path(arguments.output), arguments.force) as folder:
        settings = {
            "output": str(folder),
            "skip": arguments.skip,
            "iterations": arguments.iterations,
            "mark": arguments.mark,
        }
        ended = run_script(arguments.script, "capture", settings)
        _tell_status(folder, ended)
        runs = captured_runs(folder)
        wrote = [_wrote(folder, run) for run in runs]
        warnings = _warnings(folder, runs, ended)
        if end_replacing(folder):
            wrote = [f"The captured run that was in {folder} is still there."]
    if not arguments.quiet:
        for line in (*wrote, *(f"warning: {warning}" for warning in warnings)):
            say(line)
    return ended.exit_code


def _tell_status(folder: Path, ended: Ended) -> None:
    """Add how the command's first process ended to what it told, if it is a captured one."""
    for run in captured_runs(folder):
        if run.header.pid == ended.pid:
            add_status(captured_file(folder, run.header.rank, RUN), ended.status)


def _wrote(folder: Path, run: CapturedRun) -> str:
    return f"Wrote {', '.join(map(str, captured_files(folder, run.header.rank)))}"


def _warnings(folder: Path, runs: Sequence[CapturedRun], ended: Ended) -> list[str]:
    """Say what was not captured, and why."""
    if not folder.is_dir():
        return [
            f"nothing was captured: {folder} was removed while the command ran; give --output a"
            " folder that the script leaves alone."
        ]
    if not runs:
        return [f"nothing was captured: {_why_nothing(ended)}."]
    lacks = [(Path(run.source).name, shortcoming(run)) for run in runs]
    return [f"{name}: {lack}" for name, lack in lacks if lack is not None]


def _why_nothing(ended: Ended) -> str:
    imported = "imported torch, in a Python that heeds PYTHONPATH"
    if ended.exit_code > 128:
        stopped = signal_name(ended.exit_code - 128)
        return f"the command was stopped by {stopped} before a process of it had imported torch"
    if ended.status:
        return f"the command ended with {ended.status} before a process of it had {imported}"
    return f"no process of the command {imported}"
