"""The arguments of a replay in, its program and its options out."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from et_replay.commands import options
from et_replay.commands.facts_of_run import settings_of, version_of
from et_replay.commands.output import warn
from et_replay.commands.replay_arguments import DEFAULT_WORKSPACE
from et_replay.errors import UsageError
from et_replay.execution_trace import ExecutionTrace
from et_replay.explain.explanation import Moment
from et_replay.formats.captured_run import CapturedRun, run_that_wrote
from et_replay.planning import read_plan
from et_replay.program import Mode, Program, build_program, select_window
from et_replay.simulation import NEWEST_VERSION

if TYPE_CHECKING:
    from et_replay.replay import ReplayOptions
    from et_replay.replay.configuration import Configuration

_NO_SETTINGS = (
    "{} has lines that cannot be read, and no other tells the job's settings of PyTorch: those of"
    " this process are in force."
)


def program_of(trace: ExecutionTrace, arguments: argparse.Namespace) -> Program:
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


def options_for(arguments: argparse.Namespace, program: Program) -> ReplayOptions:
    """Read the options of a replay, and refuse those that its device cannot follow."""
    configuration = configuration_of(arguments)
    check_device(arguments)
    captured = run_that_wrote(program.trace.source)
    return with_workspace(program, options_of(arguments, configuration, captured))


def options_of(
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
        imitated_version=version_of(captured, arguments.torch_version) or NEWEST_VERSION,
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


def with_workspace(program: Program, options: ReplayOptions) -> ReplayOptions:
    """Put what the trace suggests in the place of a size that is left open."""
    from et_replay.replay.workspaces import default_library_workspace

    if options.library_workspace != DEFAULT_WORKSPACE:
        return options
    return dataclasses.replace(options, library_workspace=default_library_workspace(program))


def configuration_of(arguments: argparse.Namespace) -> Configuration:
    """Read what --config says, nothing without it."""
    from et_replay.replay.configuration import Configuration, read_configuration

    return Configuration() if arguments.config is None else read_configuration(arguments.config)


def unmatched_skips(
    program: Program, options: ReplayOptions, arguments: argparse.Namespace
) -> list[str]:
    """Say which entries of --config leave nothing out, as they match no operation to replay."""
    from et_replay.replay.configuration import unmatched

    nodes = [operation.node for operation in program.operations]
    return [
        f"--config {arguments.config}: {what} at `$.skip[{index}]` matches no operation of this"
        " replay, so it leaves nothing out."
        for index, what in unmatched(options.skips, nodes)
    ]


def check_device(arguments: argparse.Namespace) -> None:
    """Refuse flags that need more than a real device shows, and name those a simulated one lacks.

    Raises UsageError for a device that cannot be had, too.
    """
    from et_replay.replay.target import choose_target

    target = choose_target(arguments.device, "")
    target.refuse_simulated(
        {
            "--page": arguments.page is not None,
            "--explain peak": arguments.explain == Moment.PEAK.value,
            "--torch-version": arguments.torch_version is not None,
        }
    )
    if target.simulated:
        why = f"is for a replay on cuda, and means nothing on {target.device}"
        warn(options.meaningless(arguments, ("run_kernels",), why), arguments.quiet)
