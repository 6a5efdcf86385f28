"""`et_replay run`: a script and a plan in; its own output, and what each iteration took, out."""

from __future__ import annotations

import argparse
import ctypes
import os
from pathlib import Path
from threading import Thread

import msgspec

from et_replay.commands import argument_types, options
from et_replay.commands.output import STDOUT, check_destination, say, write_whole
from et_replay.errors import UsageError
from et_replay.planning import read_plan, run_plan
from et_replay.planning.plan_folder import plans_in
from et_replay.report.document import document
from et_replay.report.run import RunReport, reports_object
from et_replay.run.messages import Mailbox, Message
from et_replay.run.settings import PLANNED_RUN, RunSettings
from et_replay.script.launch import command_of, run_script
from et_replay.simulation import ALLOCATORS, PLANNED, SIMULATED_ONLY, TORCH, Simulator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run."""
    parser.add_argument(
        "--plan",
        type=argument_types.path,
        metavar="FILE",
        help="the plan of the job, from et_replay plan --trace DIR of a captured run; of several "
        "ranks the folder with rank-R.plan.json for each",
    )
    parser.add_argument(
        "--allocator",
        metavar="NAME[:SETTINGS]",
        help="who serves, for comparison: native, expandable, or torch for PyTorch's own; or "
        f"stalloc with settings of what serves besides the plan (default: {PLANNED_RUN})",
    )
    parser.add_argument(
        "--device-memory",
        type=argument_types.size,
        metavar="SIZE",
        help="use so much of each device at most, such as 24GiB (default: all of it)",
    )
    options.add_mark(parser)
    parser.add_argument(
        "--json", type=argument_types.path, metavar="FILE", help="write the result as JSON"
    )
    parser.add_argument("--force", action="store_true", help="let --json overwrite a file")
    parser.add_argument("--quiet", action="store_true", help="no line for each iteration")
    options.add_script(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run a training script under a planned allocator, without a change to it."""
    allocator = _check(arguments)
    with Mailbox() as mailbox:
        settings = RunSettings(
            allocator=allocator,
            messages=str(mailbox.path),
            plan=arguments.plan and os.path.abspath(arguments.plan),
            device_memory=arguments.device_memory,
            mark=arguments.mark,
        )
        reader = _Reader(mailbox, settings, arguments.quiet)
        ended = run_script(arguments.script, "run", msgspec.to_builtins(settings))
        reports = reader.finish()
    if not reports and not reader.refused and not arguments.quiet:
        mark = f" with a mark {arguments.mark}" if arguments.mark else ""
        say(f"et_replay: warning: no iteration{mark} ended in a process that uses CUDA.")
    for summary in filter(None, (report.summary() for report in reports)):
        if not arguments.quiet:
            say(f"et_replay: {summary}")
    if arguments.json is not None:
        content = document("run", reports_object(reports, ended.exit_code)).encode()
        write_whole(Path(arguments.json), content, arguments.force)
    return ended.exit_code


def _check(arguments: argparse.Namespace) -> str:
    """Refuse what cannot be before the script starts; return who serves."""
    if arguments.json == STDOUT:
        raise UsageError("--json - would write into the script's own output; give it a file.")
    check_destination(arguments.json, arguments.force, arguments.plan or "")
    allocator: str = arguments.allocator or PLANNED_RUN
    name, _, settings = allocator.partition(":")
    served = [TORCH, *(each for each in ALLOCATORS if each not in SIMULATED_ONLY)]
    if name in SIMULATED_ONLY:
        raise UsageError(
            f"The allocator {name} exists in simulation only, expected one of {', '.join(served)};"
            " et_replay compare simulates it."
        )
    if name not in served:
        raise UsageError(f"Expected an allocator among {', '.join(served)}, got {name!r}.")
    if (name == PLANNED) != (arguments.plan is not None):
        raise UsageError(
            "A run under stalloc needs --plan, and no other allocator takes one; et_replay plan"
            " makes it from what et_replay capture wrote."
        )
    if name == TORCH and arguments.device_memory is not None:
        raise UsageError("--device-memory limits our allocators; torch has its own settings.")
    Simulator(f"native:{settings}" if name == TORCH else allocator)
    command_of(arguments.script)
    for path in plans_in(arguments.plan, of_ranks=True) if arguments.plan else ():
        run_plan(read_plan(path))
    _check_driver()
    return allocator


def _check_driver() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise UsageError(
            "A run needs an NVIDIA GPU, and there is no driver (libcuda.so.1) here; et_replay"
            " compare --plan tells without one what its addresses would serve."
        ) from None


class _Reader(Thread):
    """Prints what the processes of the script tell, while it runs."""

    def __init__(self, mailbox: Mailbox, settings: RunSettings, quiet: bool) -> None:
        super().__init__(daemon=True)
        self._mailbox = mailbox
        self._settings = settings
        self._quiet = quiet
        self.refused = False
        self._reports: dict[int, RunReport] = {}
        self.start()

    def run(self) -> None:
        for message in self._mailbox.messages():
            self._take(message)

    def finish(self) -> list[RunReport]:
        """Wait for what was told before the script ended; return the reports by rank."""
        self._mailbox.close()
        self.join()
        return [report for _, report in sorted(self._reports.items())]

    def _take(self, message: Message) -> None:
        if "refused" in message:
            self.refused = True
            say(f"et_replay: error: {message['refused']}")
            return
        rank = message.pop("rank")
        report = self._reports.setdefault(
            rank, RunReport(rank, self._settings.allocator, self._settings.plan)
        )
        text = report.add(message)
        if not self._quiet:
            say("\n".join(f"et_replay: {line}" for line in text.splitlines()))
