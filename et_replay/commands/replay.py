"""`et_replay [replay]`: a trace in, its operators run again, their time and memory out.

A memory history has no operators: its requests are served again (see replay_history.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from et_replay.commands import options
from et_replay.commands.facts_of_run import version_of, with_gpu
from et_replay.commands.input_files import expand_to_one
from et_replay.commands.inputs import plan_path
from et_replay.commands.needs_torch import needs_torch
from et_replay.commands.output import (
    check_destination,
    check_distinct,
    progress_bar,
    warn,
    write_result,
    write_whole,
)
from et_replay.commands.pages import maps_of, write_page
from et_replay.commands.reasons import reasons_of
from et_replay.commands.replay_arguments import add_arguments as add_arguments
from et_replay.commands.replay_history import replay_history
from et_replay.commands.replay_inputs import (
    check_device,
    configuration_of,
    options_of,
    program_of,
    unmatched_skips,
    with_workspace,
)
from et_replay.commands.replay_ranks import is_for_ranks, replay_ranks
from et_replay.errors import OutOfMemoryError, ReplayError, UsageError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.explain.explanation import Moment
from et_replay.formats import open_recording
from et_replay.formats.captured_run import CapturedRun
from et_replay.program import (
    Program,
    check_operations,
    history_of_replay,
)
from et_replay.whole_files import appearing

if TYPE_CHECKING:
    from et_replay.replay import ReplayOptions, ReplayResult
    from et_replay.replay.configuration import Configuration


_FILES = ("json", "page", "profile", "execution_trace", "update_config", "dump")
"""Where the options are kept that name a file to write."""

_RECORDED = ("profile", "execution_trace")
"""Those of them that a further iteration writes, which may fail."""


def run(arguments: argparse.Namespace) -> int:
    """Run a trace's operators again and report their time and memory."""
    if is_for_ranks(arguments):
        _check_files(arguments)
        _check_fraction(arguments)
        return replay_ranks(arguments)
    arguments.trace, captured, _ = expand_to_one(arguments.trace)
    _check_files(arguments)
    if arguments.plan is not None:
        arguments.plan = plan_path(arguments.plan, arguments.trace)
    recording = open_recording(arguments.trace, strict=arguments.strict)
    if isinstance(recording, MemoryHistory):
        version = version_of(captured, arguments.torch_version)
        return replay_history(with_gpu(recording, captured), arguments, version)
    _check_fraction(arguments)
    return _replay_trace(recording, arguments, captured)


def _check_fraction(arguments: argparse.Namespace) -> None:
    if arguments.memory_fraction is not None:
        raise UsageError(
            "--memory-fraction is for memory histories: a replay takes --device-memory alone."
        )


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse, before any work, files that cannot be written, and such that exclude each other."""
    files = {options.flag(name): getattr(arguments, name) for name in _FILES}
    for flag, destination in files.items():
        check_destination(destination, arguments.force, arguments.trace, flag)
        if destination is not None and arguments.dump is not None and flag != "--dump":
            raise UsageError(
                f"--dump writes a file instead of replaying, so there is nothing for {flag} to say."
            )
    check_distinct(files.items())
    if arguments.update_config is not None and arguments.device == "meta":
        raise UsageError(
            "--update-config needs operators that compute: what meta cannot do, another device can;"
            " use --device cuda or --device cpu."
        )
    read = {options.flag(name): getattr(arguments, name) for name in ("config", "plan")}
    given = {flag: path for flag, path in read.items() if path and os.path.exists(path)}
    files.pop("--update-config")  # may be what --config reads
    check_distinct([*given.items(), *files.items()])


def _replay_trace(
    trace: ExecutionTrace, arguments: argparse.Namespace, captured: CapturedRun | None
) -> int:
    with needs_torch("A replay"):
        configuration = configuration_of(arguments)
    options = options_of(arguments, configuration, captured)
    check_device(arguments)
    program = program_of(trace, arguments)
    check_operations(program)
    warn(unmatched_skips(program, options, arguments), arguments.quiet)
    if arguments.dump is not None:
        return _dump(program, options, arguments)
    result, missing = _replay(program, options, arguments)
    said = (*program.trace.notes, *program.notes)
    warn([note for note in result.notes if note not in said], arguments.quiet)
    _write_files(program, result, configuration, arguments)
    return _report(program, result, missing, arguments)


def _replay(
    program: Program, options: ReplayOptions, arguments: argparse.Namespace
) -> tuple[ReplayResult, list[str]]:
    """Replay, and let the files about further iterations appear once it has come to its end.

    Returns with the result the options whose files were not written.
    """
    from et_replay.replay import replay

    options = with_workspace(program, options)
    with ExitStack() as files, progress_bar(arguments.quiet) as progress:
        partial = {
            name: files.enter_context(appearing(Path(getattr(arguments, name)), arguments.force))
            for name in _RECORDED
            if getattr(arguments, name) is not None
        }
        options = dataclasses.replace(
            options,
            profile=partial.get("profile"),
            execution_trace=partial.get("execution_trace"),
        )
        result = replay(program, options, progress)
        missing = [name for name, path in partial.items() if not path.exists()]
    return result, missing


def _dump(program: Program, options: ReplayOptions, arguments: argparse.Namespace) -> int:
    from et_replay.replay.dump import dump

    text, replayed = dump(program, options)
    write_whole(Path(arguments.dump), text.encode(), arguments.force)
    count = len(program.operations)
    which = "which it replays" if replayed == count else f"{replayed} of which it replays"
    write_result(f"Wrote {arguments.dump}: {count} operations, {which}.", "", None, False)
    return 0


def _write_files(
    program: Program,
    result: ReplayResult,
    configuration: Configuration,
    arguments: argparse.Namespace,
) -> None:
    """Write the page and the configuration, as far as they are asked for."""
    if arguments.page:
        _write_page(program, result, arguments)
    if arguments.update_config:
        found = configuration.extended(arguments.imports, result.coverage.unexecuted)
        write_whole(Path(arguments.update_config), found.document(), arguments.force)


def _report(
    program: Program, result: ReplayResult, missing: list[str], arguments: argparse.Namespace
) -> int:
    """Print what a replay showed; return the exit code."""
    from et_replay.report.document import document
    from et_replay.report.replay import replay_object, replay_text

    explanation, ways_out = reasons_of(program, result, Moment(arguments.explain))
    write_result(
        replay_text(result, explanation, ways_out, arguments.verbose),
        document("replay", [replay_object(result, explanation, ways_out)]),
        arguments.json,
        arguments.force,
    )
    if result.out_of_memory is not None:
        return OutOfMemoryError.exit_code
    if missing:
        path = getattr(arguments, missing[0])
        raise ReplayError(f"{options.flag(missing[0])} {path} is not written, as the notes say.")
    return 0


def _write_page(program: Program, result: ReplayResult, arguments: argparse.Namespace) -> None:
    assert result.events is not None, "--page is refused where the device is real"
    history = history_of_replay(program, result.events, result.library_workspace)
    capacity = result.device_memory - result.other_memory
    maps = maps_of(history, [result.allocator], capacity, result.imitated_version, result.plan)
    write_page(maps, arguments.page, arguments.force)
