"""`et_replay [replay]`: a trace in, its operators run again, their time and memory out.

A memory history has no operators: its requests are served again (see replay_history.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from et_replay.commands import options
from et_replay.commands.facts_of_run import settings_of, version_of, with_gpu
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
from et_replay.commands.replay_arguments import DEFAULT_WORKSPACE
from et_replay.commands.replay_arguments import add_arguments as add_arguments
from et_replay.commands.replay_history import replay_history
from et_replay.commands.replay_ranks import is_for_ranks, replay_ranks
from et_replay.errors import OutOfMemoryError, ReplayError, UsageError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.explain import Explanation, Option, explain, find_way_out
from et_replay.explain.cases import cases_of
from et_replay.explain.explanation import Moment
from et_replay.formats import open_recording
from et_replay.formats.captured_run import CapturedRun, run_that_wrote
from et_replay.planning import read_plan
from et_replay.program import (
    Mode,
    Program,
    build_program,
    check_operations,
    history_of_replay,
    select_window,
)
from et_replay.serving import as_recorded
from et_replay.simulation import NEWEST_VERSION
from et_replay.whole_files import appearing

if TYPE_CHECKING:
    from et_replay.replay import ReplayOptions, ReplayResult
    from et_replay.replay.configuration import Configuration


_FILES = ("json", "page", "profile", "execution_trace", "update_config", "dump")
"""Where the options are kept that name a file to write."""

_RECORDED = ("profile", "execution_trace")
"""Those of them that a further iteration writes, which may fail."""

_NO_SETTINGS = (
    "{} has lines that cannot be read, and no other tells the job's settings of PyTorch: those of"
    " this process are in force."
)


def run(arguments: argparse.Namespace) -> int:
    """Run a trace's operators again and report their time and memory."""
    if is_for_ranks(arguments):
        _check_files(arguments)
        _check_fraction(arguments)
        return replay_ranks(arguments, _program_of, _options_for_all, _reasons)
    arguments.trace, captured, _ = expand_to_one(arguments.trace)
    _check_files(arguments)
    if arguments.plan is not None:
        arguments.plan = plan_path(arguments.plan, arguments.trace)
    recording = open_recording(arguments.trace, strict=arguments.strict)
    if isinstance(recording, MemoryHistory):
        return replay_history(with_gpu(recording, captured), arguments, version_of(captured))
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


def _options_for_all(arguments: argparse.Namespace, program: Program) -> ReplayOptions:
    """Read the options of a replay, and refuse those that its device cannot follow."""
    from et_replay.replay.target import choose_target

    configuration = _configuration_of(arguments)
    choose_target(arguments.device, "").refuse_simulated(_only_simulated(arguments))
    captured = run_that_wrote(program.trace.source)
    return _with_workspace(program, _options_of(arguments, configuration, captured))


def _configuration_of(arguments: argparse.Namespace) -> Configuration:
    """Read what --config says, nothing without it."""
    from et_replay.replay.configuration import Configuration, read_configuration

    return Configuration() if arguments.config is None else read_configuration(arguments.config)


def _with_workspace(program: Program, options: ReplayOptions) -> ReplayOptions:
    """Put what the trace suggests in the place of a size that is left open."""
    from et_replay.replay.workspaces import default_library_workspace

    if options.library_workspace != DEFAULT_WORKSPACE:
        return options
    return dataclasses.replace(options, library_workspace=default_library_workspace(program))


def _replay_trace(
    trace: ExecutionTrace, arguments: argparse.Namespace, captured: CapturedRun | None
) -> int:
    with needs_torch("A replay"):
        from et_replay.replay.target import choose_target
    configuration = _configuration_of(arguments)
    options = _options_of(arguments, configuration, captured)
    choose_target(arguments.device, "").refuse_simulated(_only_simulated(arguments))
    program = _program_of(trace, arguments)
    check_operations(program)
    if arguments.dump is not None:
        return _dump(program, options, arguments)
    result, missing = _replay(program, options, arguments)
    said = (*program.trace.notes, *program.notes)
    warn([note for note in result.notes if note not in said], arguments.quiet)
    _write_files(program, result, configuration, arguments)
    return _report(program, result, missing, arguments)


def _options_of(
    arguments: argparse.Namespace, configuration: Configuration, captured: CapturedRun | None
) -> ReplayOptions:
    from et_replay.replay import ReplayOptions

    if captured is not None and captured.lost and not captured.torch_settings:
        warn([_NO_SETTINGS.format(captured.source)], arguments.quiet)
    return ReplayOptions(
        mode=Mode(arguments.tensor_allocation_mode),
        device=arguments.device,
        device_memory=arguments.device_memory,
        gpu_memory=None if captured is None else captured.header.device_memory_bytes,
        imitated_version=version_of(captured) or NEWEST_VERSION,
        device_memory_threshold=arguments.device_memory_threshold,
        warmup=arguments.warmup,
        iterations=arguments.iterations,
        on_unsupported=arguments.on_unsupported,
        seed=arguments.seed,
        library_workspace=arguments.library_workspace,
        plan=None if arguments.plan is None else read_plan(arguments.plan),
        allocator=arguments.allocator,
        other_memory=arguments.other_memory,
        run_kernels=arguments.run_kernels,
        operator_times=arguments.operator_times,
        imports=tuple(dict.fromkeys((*configuration.imports, *arguments.imports))),
        skips=configuration.skip,
        torch_settings=settings_of(captured),
    )


def _replay(
    program: Program, options: ReplayOptions, arguments: argparse.Namespace
) -> tuple[ReplayResult, list[str]]:
    """Replay, and let the files about further iterations appear once it has come to its end.

    Returns with the result the options whose files were not written.
    """
    from et_replay.replay import replay

    options = _with_workspace(program, options)
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

    explanation, ways_out = _reasons(program, result, arguments)
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


def _only_simulated(arguments: argparse.Namespace) -> dict[str, bool]:
    """Tell which flags are given that need more than a real device shows."""
    return {
        "--page": arguments.page is not None,
        "--explain peak": arguments.explain == Moment.PEAK.value,
    }


def _program_of(trace: ExecutionTrace, arguments: argparse.Namespace) -> Program:
    warn(trace.notes, arguments.quiet)
    program = build_program(trace, select_window(trace, _window(arguments)))
    warn(program.notes, arguments.quiet)
    return program


def _window(arguments: argparse.Namespace) -> str | None:
    """Write what --window, --subgraph and --node say as `select_window` takes it."""
    if arguments.node is None:
        return options.window_of(arguments)
    if arguments.window is not None or arguments.subgraph is not None:
        raise UsageError("--node names one operator, so --window and --subgraph contradict it.")
    return f"{arguments.node}:{arguments.node + 1}"


def _reasons(
    program: Program, result: ReplayResult, arguments: argparse.Namespace
) -> tuple[Explanation | None, list[Option]]:
    """Explain a failure, or of a simulated device its peak where that is asked."""
    if result.at_failure is not None:
        return _reasons_measured(program, result, result.at_failure)
    moment = Moment(arguments.explain)
    if result.events is None or (result.out_of_memory is None and moment is Moment.FAILURE):
        return None, []
    capacity = result.device_memory - result.other_memory
    explanation = explain(
        history_of_replay(program, result.events, result.library_workspace),
        result.allocator,
        capacity,
        moment=moment,
        torch_version=result.imitated_version,
        plan=result.plan,
    )
    if result.out_of_memory is None:
        return explanation, []
    _name_operation(explanation, result.out_of_memory)
    return explanation, find_way_out(cases_of(program), capacity, result.imitated_version)


def _reasons_measured(
    program: Program, result: ReplayResult, history: MemoryHistory
) -> tuple[Explanation | None, list[Option]]:
    """Explain a real device's failure by simulating the one request that it could not serve."""
    failure, capacity = result.out_of_memory, history.device_memory
    assert failure is not None
    assert capacity is not None
    explanation = None
    with suppress(UsageError):  # a setting of a torch that is newer than the simulation
        explanation = explain(
            history,
            as_recorded(history),
            capacity,
            torch_version=history.torch_version,
            fraction=failure.limit / capacity if failure.limit < capacity else None,
        )
    _name_operation(explanation, failure)
    return explanation, find_way_out(cases_of(program), min(failure.limit, capacity))


def _name_operation(explanation: Explanation | None, failure: OutOfMemoryError) -> None:
    """Let an explanation name the operation that failed: its event names the call inside of it."""
    if explanation is not None and explanation.failure is not None:
        explanation.failure.node_id = failure.node_id
        explanation.failure.operator = failure.operator


def _write_page(program: Program, result: ReplayResult, arguments: argparse.Namespace) -> None:
    assert result.events is not None, "--page is refused where the device is real"
    history = history_of_replay(program, result.events, result.library_workspace)
    capacity = result.device_memory - result.other_memory
    maps = maps_of(history, [result.allocator], capacity, result.imitated_version, result.plan)
    write_page(maps, arguments.page, arguments.force)
