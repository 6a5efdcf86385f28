"""A replay to run in, its result out, from a process of its own.

Who serves a GPU's memory can be chosen only once in a process, before it uses CUDA.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from et_replay.errors import ReplayError
from et_replay.formats import open_trace
from et_replay.program import build_program, check_operations, select_window
from et_replay.replay.engine import replay
from et_replay.replay.options import ReplayOptions
from et_replay.replay.result import ReplayResult


@dataclass(frozen=True)
class ReplayJob:
    """A trace file, how to read it, and how to replay it."""

    trace: str
    window: str | None
    strict: bool
    options: ReplayOptions


def replay_in_own_process(job: ReplayJob) -> ReplayResult:
    """Run `job`; raises what it raises, and ReplayError where its process ends by itself."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_replay, job).result()
        except BrokenProcessPool:
            raise ReplayError(
                f"The process that replayed {job.trace} with the allocator"
                f" {job.options.allocator_that_serves} ended without a result; run et_replay replay"
                " with it to see why."
            ) from None


def _replay(job: ReplayJob) -> ReplayResult:
    trace = open_trace(job.trace, strict=job.strict)
    program = build_program(trace, select_window(trace, job.window))
    check_operations(program)
    return replay(program, job.options)
