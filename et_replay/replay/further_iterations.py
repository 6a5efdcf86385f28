"""Further iterations of a replay in, the times of its collectives and operations out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from et_replay.errors import EtReplayError, first_line
from et_replay.program.program import Program
from et_replay.replay.iteration import Iteration, Progress
from et_replay.replay.lead import Lead
from et_replay.replay.operation_clock import add_up, clock_for
from et_replay.replay.options import ReplayOptions
from et_replay.replay.result import ReplayResult
from et_replay.replay_modes import COMM

if TYPE_CHECKING:
    from et_replay.replay.communication.communicator import Communicator


def with_collective_times(
    result: ReplayResult,
    iteration: Iteration,
    device: torch.device,
    options: ReplayOptions,
    communicator: Communicator | None,
) -> ReplayResult:
    """Run further iterations, and take the time of each collective in them.

    All ranks run as many, or they would wait for each other.
    """
    if communicator is None or not communicator.is_timed:
        return result
    lead = Lead(iteration, device, options.replay_mode == COMM, communicator)
    times = [
        communicator.timed(lead, lambda: iteration.timed(first=False, idle=False))
        for _ in range(options.collective_iterations)
    ]
    return replace(result, collective_times=communicator.times(), timed_iterations=tuple(times))


def with_operation_times(
    result: ReplayResult,
    program: Program,
    iteration: Iteration,
    device: torch.device,
    options: ReplayOptions,
    progress: Progress,
) -> ReplayResult:
    """Run further iterations, and take the time of each operation in them.

    Returns `result` with a note where that failed; `progress` counts all iterations of the replay.
    """
    further = options.further_iterations(device.type)
    if not further:
        return result
    count = len(iteration.operations)
    before = options.warmup + options.iterations
    clock = clock_for(device, count)
    iterations: list[list[int]] = []
    try:
        while len(iterations) < further:
            iteration.marked(clock.mark)
            clock.mark(count)
            iterations.append(clock.intervals())
            progress((before + len(iterations)) * count, (before + further) * count)
    except (EtReplayError, RuntimeError) as error:  # what was measured before stands
        reason = first_line(error)
        note = f"The times of operations are missing, as taking them failed: {reason}."
        return replace(result, notes=(*result.notes, note))
    return replace(result, operation_times=add_up(program, iterations))
