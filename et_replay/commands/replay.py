"""`et_replay [replay]`: a trace in, its operators run again, their time and memory out.

A memory history has no operators: its requests are served again (see replay_history.py).
"""

from __future__ import annotations

import argparse
import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING

from et_replay.commands import options
from et_replay.commands.needs_torch import needs_torch
from et_replay.commands.output import (
    check_destination,
    check_distinct,
    progress_bar,
    warn,
    write_result,
)
from et_replay.commands.pages import maps_of, write_page
from et_replay.commands.replay_history import replay_history
from et_replay.errors import OutOfMemoryError, UsageError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.explain import Explanation, Option, explain, find_way_out
from et_replay.explain.cases import cases_of
from et_replay.explain.explanation import Moment
from et_replay.formats import open_recording
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

if TYPE_CHECKING:
    from et_replay.replay.result import ReplayResult

_DEFAULT_WORKSPACE = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a replay."""
    options.add_input(parser)
    _add_memory(parser)
    parser.add_argument(
        "--device",
        type=options.device,
        default="auto",
        metavar="NAME",
        help="auto (cuda where there is one, else cpu), cuda, cuda:N, cpu, or meta, which computes "
        "shapes only; on cpu and meta the device memory is simulated (default: auto)",
    )
    parser.add_argument(
        "--cpu", dest="device", action="store_const", const="cpu", help="short for --device cpu"
    )
    parser.add_argument(
        "--warmup",
        "--warmup-iter",
        type=options.integer(0),
        default=1,
        metavar="N",
        help="iterations before the measured ones (default: 1)",
    )
    parser.add_argument(
        "--iterations",
        "--iter",
        type=options.integer(1),
        default=3,
        metavar="N",
        help="measured iterations (default: 3)",
    )
    parser.add_argument(
        "--operator-times",
        action=argparse.BooleanOptionalAction,
        help="take the time of each operation, in three more iterations after the measured ones "
        "(default: on cuda only)",
    )
    parser.add_argument(
        "--on-unsupported",
        choices=("substitute", "skip", "fail"),
        default="substitute",
        help="what to do for an operator that cannot run here: let its outputs appear with their "
        "recorded shapes, leave it out, or stop (default: substitute)",
    )
    options.add_run_kernels(parser)
    parser.add_argument(
        "--seed",
        type=options.integer(0),
        default=0,
        metavar="N",
        help="seed of all values (default: 0)",
    )
    options.add_page(parser)
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="all operators' times; of what is explained, also a picture of each segment: what is "
        "used and what is free",
    )
    options.add_output(parser)


def _add_memory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tensor-allocation-mode",
        choices=[mode.value for mode in Mode],
        default=Mode.PRE_ALLOCATE.value,
        metavar="pre|lazy|stalloc",
        help="pre: inputs exist before the first iteration, as in the original job; lazy: every "
        "storage is allocated before its first use and freed after its last; stalloc: as lazy, at "
        "addresses planned ahead of time (default: pre)",
    )
    parser.add_argument(
        "--enable-lazy-tensor-allocation",
        dest="tensor_allocation_mode",
        action="store_const",
        const=Mode.LAZY_ALLOCATE.value,
        help="short for --tensor-allocation-mode lazy",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="the plan that stalloc serves, from et_replay plan (default: one made for the trace)",
    )
    parser.add_argument(
        "--device-memory-threshold",
        type=options.share,
        default=1.0,
        metavar="F",
        help="lazy mode: share of the device memory above which everything that the next operation "
        "does not need is freed, to be created again when needed (default: 1, never)",
    )
    parser.add_argument(
        "--device-memory",
        type=options.size,
        metavar="SIZE",
        help="capacity of the device, such as 24GiB (default: 80GiB if simulated, else all of it)",
    )
    options.add_other_memory(parser)
    parser.add_argument(
        "--allocator",
        metavar="NAME[:SETTINGS]",
        help="the allocator, with settings in PYTORCH_ALLOC_CONF's syntax; et_replay compare "
        "--help lists them; on cuda one serves in place of PyTorch's own, whose name is torch "
        "there (default: native, on cuda torch, in mode stalloc that; of a history, as recorded)",
    )
    parser.add_argument(
        "--memory-fraction",
        type=options.share,
        metavar="F",
        help="for a history: what share of the device memory PyTorch may hold, as "
        "torch.cuda.set_per_process_memory_fraction sets it (default: all)",
    )
    parser.add_argument(
        "--explain",
        choices=[moment.value for moment in Moment],
        default=Moment.FAILURE.value,
        help="what to explain: a request that runs out of memory, or the peak (default: oom)",
    )
    parser.add_argument(
        "--library-workspace",
        nargs="?",
        type=options.size_or_none,
        const=_DEFAULT_WORKSPACE,
        default=0,
        metavar="SIZE",
        help="add memory that libraries such as cuBLAS take and no trace records; without SIZE "
        "32MiB a thread that runs matrix products on cuda, nothing on other devices",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run a trace's operators again and report their time and memory."""
    check_destination(arguments.json, arguments.force, arguments.trace)
    check_destination(arguments.page, arguments.force, arguments.trace, "--page")
    check_distinct((("--json", arguments.json), ("--page", arguments.page)))
    recording = open_recording(arguments.trace, strict=arguments.strict)
    if arguments.memory_fraction is not None and not isinstance(recording, MemoryHistory):
        raise UsageError(
            "--memory-fraction is for memory histories: a replay takes --device-memory alone."
        )
    if isinstance(recording, MemoryHistory):
        return replay_history(recording, arguments)
    return _replay_trace(recording, arguments)


def _replay_trace(trace: ExecutionTrace, arguments: argparse.Namespace) -> int:
    with needs_torch("A replay"):
        from et_replay.replay import ReplayOptions, replay
        from et_replay.replay.target import choose_target
        from et_replay.replay.workspaces import default_library_workspace
    from et_replay.report.document import document
    from et_replay.report.replay import replay_object, replay_text

    options = ReplayOptions(
        mode=Mode(arguments.tensor_allocation_mode),
        device=arguments.device,
        device_memory=arguments.device_memory,
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
    )
    choose_target(arguments.device, "").refuse_simulated(_only_simulated(arguments))
    program = _program_of(trace, arguments)
    if options.library_workspace == _DEFAULT_WORKSPACE:
        options = dataclasses.replace(options, library_workspace=default_library_workspace(program))
    with progress_bar(arguments.quiet) as progress:
        result = replay(program, options, progress)
    said = (*program.trace.notes, *program.notes)
    warn([note for note in result.notes if note not in said], arguments.quiet)
    explanation, ways_out = _reasons(program, result, arguments)
    if arguments.page:
        _write_page(program, result, arguments)
    write_result(
        replay_text(result, explanation, ways_out, arguments.verbose),
        document("replay", [replay_object(result, explanation, ways_out)]),
        arguments.json,
        arguments.force,
    )
    return 0 if result.out_of_memory is None else OutOfMemoryError.exit_code


def _only_simulated(arguments: argparse.Namespace) -> dict[str, bool]:
    """Tell which flags are given that need more than a real device shows."""
    return {
        "--page": arguments.page is not None,
        "--explain peak": arguments.explain == Moment.PEAK.value,
    }


def _program_of(trace: ExecutionTrace, arguments: argparse.Namespace) -> Program:
    warn(trace.notes, arguments.quiet)
    program = build_program(trace, select_window(trace, arguments.window))
    warn(program.notes, arguments.quiet)
    check_operations(program)
    return program


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
        plan=result.plan,
    )
    if result.out_of_memory is None:
        return explanation, []
    _name_operation(explanation, result.out_of_memory)
    return explanation, find_way_out(cases_of(program), capacity)


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
    maps = maps_of(history, [result.allocator], capacity, NEWEST_VERSION, result.plan)
    write_page(maps, arguments.page, arguments.force)
