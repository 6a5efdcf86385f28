"""`et_replay compare --device`: a trace replayed under several allocators, measured and simulated.

Each has a process of its own, and what it was asked for is served again in simulation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

from et_replay.commands import options
from et_replay.commands.facts_of_run import settings_of
from et_replay.commands.input_files import expand
from et_replay.commands.output import progress_bar, warn, write_result
from et_replay.comparison import Comparison, compare
from et_replay.errors import OutOfMemoryError, ReplayError, UsageError
from et_replay.events import MemoryHistory
from et_replay.formats import open_trace
from et_replay.formats.captured_run import CapturedRun
from et_replay.program import (
    Mode,
    Program,
    build_program,
    history_of_requests,
    select_window,
)
from et_replay.replay.options import ReplayOptions
from et_replay.replay.own_process import ReplayJob, replay_in_own_process
from et_replay.replay.result import ReplayResult
from et_replay.replay.target import choose_target
from et_replay.report.compare import InputReport
from et_replay.report.compare_on_device import DeviceReport, device_objects, device_text
from et_replay.report.document import document
from et_replay.simulation import (
    PLANNED,
    SIMULATED_ONLY,
    TORCH,
    Simulator,
    allocator_name,
    nearest_version,
)

DEFAULT_ALLOCATORS = (TORCH, f"{TORCH}:expandable_segments:True", "native", "expandable", PLANNED)
_WARMUP, _ITERATIONS = 2, 10


def compare_on_device(arguments: argparse.Namespace) -> int:
    """Replay every trace under every allocator, and report measured and simulated figures."""
    allocators = _allocators(arguments)
    _refuse(arguments)
    mode = Mode(arguments.tensor_allocation_mode or Mode.PRE_ALLOCATE.value)
    base = ReplayOptions(
        # Of stalloc the lifetimes are meant, under every allocator.
        mode=Mode.LAZY_ALLOCATE if mode is Mode.STALLOC_PLANNED else mode,
        device=arguments.device,
        device_memory=arguments.device_memory,
        warmup=_WARMUP,
        iterations=arguments.iterations or _ITERATIONS,
        operator_times=False,
        run_kernels=arguments.run_kernels,
        imports=tuple(arguments.imports),
    )
    jobs = [
        ReplayJob(path, options.window_of(arguments), arguments.strict, _as_in(run, base))
        for path, run, _ in expand(arguments.trace, traces=True)
    ]
    with progress_bar(arguments.quiet, unit="replays") as progress:
        total = len(jobs) * (len(allocators) + 1)
        done = iter(range(1, total + 1))
        reports = [_report(job, allocators, lambda: progress(next(done), total)) for job in jobs]
    for report in reports:
        warn((*report.compared.notes, *report.failures.values()), arguments.quiet)
    write_result(
        "\n\n".join(device_text(report) for report in reports),
        document("compare", [row for report in reports for row in device_objects(report)]),
        arguments.json,
        arguments.force,
    )
    if any(report.failures for report in reports):
        return ReplayError.exit_code
    failed = any(result.out_of_memory for report in reports for result in report.measured.values())
    return OutOfMemoryError.exit_code if failed else 0


def _as_in(run: CapturedRun | None, options: ReplayOptions) -> ReplayOptions:
    """Replay with the settings of PyTorch that a captured run tells."""
    return replace(options, torch_settings=settings_of(run))


def _refuse(arguments: argparse.Namespace) -> None:
    """Refuse what is for simulations alone, before anything runs."""
    if not arguments.device.startswith("cuda"):
        raise UsageError(
            f"--device {arguments.device} cannot be measured: expected cuda or cuda:N; without"
            " --device everything is simulated."
        )
    given = {
        "--jobs": arguments.jobs,
        "--page": arguments.page,
        "--snapshot": arguments.snapshot,
        "--plan": arguments.plan,
        "--torch-version": arguments.torch_version,
        "--memory-fraction": arguments.memory_fraction,
        "--device-index": arguments.device_index,
    }
    for flag, value in given.items():
        if value is not None:
            raise UsageError(f"{flag} and --device contradict each other: it is for simulations.")
    if "-" in arguments.trace:
        raise UsageError(
            "--device reads a trace more than once, which stdin cannot be: use a file."
        )
    choose_target(arguments.device, "", "without --device everything is simulated")


def _allocators(arguments: argparse.Namespace) -> tuple[str, ...]:
    """List the allocators, each once; raises UsageError for one that could not be simulated too."""
    allocators = tuple(dict.fromkeys(arguments.allocator or DEFAULT_ALLOCATORS))
    for allocator in allocators:
        Simulator(_simulated_as(allocator))
        if allocator_name(allocator) in SIMULATED_ONLY:
            raise UsageError(
                f"The allocator {allocator} exists in simulation only: leave out --device."
            )
    return allocators


def _simulated_as(allocator: str) -> str:
    """Name what imitates an allocator of the device: PyTorch's own is `native`."""
    name, colon, settings = allocator.partition(":")
    return f"{'native' if name == TORCH else name}{colon}{settings}"


def _report(
    job: ReplayJob, allocators: tuple[str, ...], advance: Callable[[], None]
) -> DeviceReport:
    recorded = replay_in_own_process(
        replace(job, options=replace(job.options, allocator="native", record_requests=True))
    )
    advance()
    trace = open_trace(job.trace, strict=job.strict)
    program = build_program(trace, select_window(trace, job.window))
    seen = None if recorded.requests is None else history_of_requests(program, recorded.requests)
    measured, failures = {}, {}
    rows = []
    for allocator in allocators:
        try:
            result = replay_in_own_process(
                replace(job, options=replace(job.options, allocator=allocator))
            )
        except ReplayError as error:  # the others are worth having all the same
            failures[allocator] = str(error)
            continue
        finally:
            advance()
        measured[allocator] = result
        planned = _planned_history(program, result)
        history = seen if planned is None else planned
        if history is not None:
            rows.append(_simulated(history, allocator, result, job.options))
    return DeviceReport(
        InputReport(
            input=trace.source,
            kind="execution trace",
            events=0 if seen is None else len(seen.events),
            device_memory=recorded.device_memory,
            iterations=job.options.iterations,
            addresses=None,
            rows=rows,
            notes=recorded.notes,
            history=seen,
        ),
        measured,
        failures,
    )


def _planned_history(program: Program, result: ReplayResult) -> MemoryHistory | None:
    """Return what a plan served: it begins when the plan is made, with what lives then."""
    if result.plan is None or result.requests is None:
        return None
    requests = replace(result.requests, events=result.requests.lasting_and_steady())
    return history_of_requests(program, requests)


def _simulated(
    history: MemoryHistory,
    allocator: str,
    result: ReplayResult,
    options: ReplayOptions,
) -> Comparison:
    """Serve in simulation what was seen: what came before, then the steady iteration, repeated."""
    row = compare(
        history,
        _simulated_as(allocator),
        torch_version=nearest_version(result.torch_version),
        device_memory=result.device_memory,
        iterations=options.iterations,
        warmup=options.warmup - 1,
        plan=result.plan,
    )
    return replace(row, allocator=allocator)
