"""`et_replay capture`: the words of a command in, that command run and files about its run out."""

from __future__ import annotations

import argparse
from pathlib import Path

from et_replay.captured_files import captured_files, prepare_folder
from et_replay.commands import options
from et_replay.commands.output import say
from et_replay.formats.captured_run import CapturedRun, captured_runs
from et_replay.script.launch import run_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a capture."""
    parser.add_argument(
        "--output",
        type=options.path,
        metavar="DIR",
        required=True,
        help="the folder to write to: for each rank R rank-R.run.jsonl, rank-R.et.json (execution "
        "trace) and on cuda rank-R.snapshot.pickle (memory snapshot with full history)",
    )
    parser.add_argument(
        "--skip",
        type=options.integer(0),
        default=2,
        metavar="N",
        help="iterations to let pass before the execution trace begins (default: 2)",
    )
    parser.add_argument(
        "--iterations",
        type=options.integer(1),
        default=3,
        metavar="N",
        help="iterations to record (default: 3)",
    )
    options.add_mark(parser)
    parser.add_argument("--force", action="store_true", help="overwrite a captured run in DIR")
    parser.add_argument("--quiet", action="store_true", help="no summary and no warnings")
    options.add_script(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run a script as it is, and write its execution trace, memory snapshot and iteration marks."""
    folder = prepare_folder(Path(arguments.output), arguments.force)
    settings = {
        "output": str(folder),
        "skip": arguments.skip,
        "iterations": arguments.iterations,
        "mark": arguments.mark,
    }
    code = run_script(arguments.script, "capture", settings)
    if not arguments.quiet:
        _summarize(folder)
    return code


def _summarize(folder: Path) -> None:
    """Say what was captured, on stderr as stdout is the script's."""
    runs = captured_runs(folder)
    if not runs:
        say(
            "warning: nothing was captured: no process of the command imported torch, in a Python"
            " that heeds PYTHONPATH."
        )
    for run in runs:
        say(f"Wrote {', '.join(map(str, captured_files(folder, run.header.rank)))}")
        warning = _warning(run)
        if warning is not None:
            say(f"warning: {Path(run.source).name}: {warning}")


def _warning(run: CapturedRun) -> str | None:
    """Say what a run lacks of what was asked for, and why."""
    ended, skip, iterations = run.ended, run.header.skip, run.header.iterations
    why = f" ({run.failures[-1].rstrip('.')})" if run.failures else ""
    if ended == 0 and why:
        return f"the script failed before its first iteration ended{why}."
    if ended == 0 and skip > 0:
        return (
            "no iteration ended; name a torch.profiler.record_function that encloses one by --mark,"
            " or call et_replay.capture.mark_iteration() at the end of each."
        )
    if ended <= skip and skip > 0:
        return f"{ended} iterations ended{why}, and --skip {skip} let all of them pass."
    if not run.told_trace:
        return "the process was killed before its execution trace ended; what there is can be read."
    if ended < skip + iterations:
        return f"the script ended{why} after {ended - skip} recorded iterations."
    return None
