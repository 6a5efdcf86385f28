"""Replays on a GPU under an allocator, each in a process of its own.

Run as `served_programs.py NAME TRACE MODE ALLOCATOR`; ALLOCATOR "-" is the mode's own. The last
line printed is a JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from typing import Any

import torch

from et_replay.formats import open_trace
from et_replay.program import Mode, Program, build_program
from et_replay.replay import engine
from et_replay.replay.engine import ReplayOptions, replay
from et_replay.replay.iteration import Iteration
from et_replay.replay.prepared import PreparedCall, PreparedOperation, flatten


class _Summing(Iteration):
    """Adds up each tensor that an operation of the last iteration returns."""

    sums: list[float]

    def _run_each(self, run: Any, step: Any) -> None:
        type(self).sums = []

        def summed(operation: PreparedOperation, call: PreparedCall) -> Any:
            result = run(operation, call)
            for leaf in flatten(result):
                if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point:
                    self.sums.append(leaf.to("cpu", torch.float64).abs().sum().item())
            return result

        super()._run_each(summed, step)


def sums(program: Program, options: ReplayOptions) -> dict[str, Any]:
    """Return the sums of all results of one iteration."""
    engine.Iteration = _Summing  # type: ignore[misc]
    result = replay(program, options)
    return {"sums": _Summing.sums, "fallback": _fallback(result)}


def many(program: Program, options: ReplayOptions) -> dict[str, Any]:
    """Run 1,000 iterations; return what is allocated, and the process' memory, now and then."""
    seen: list[tuple[int, int]] = []

    def look(done: int, total: int) -> None:
        if done * 10 % total == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            seen.append((torch.cuda.memory_allocated(), peak))

    result = replay(program, options, look)
    planned = None if result.plan_figures is None else result.plan_figures.planned.requests
    return {"seen": seen, "planned": planned, "fallback": _fallback(result)}


def figures(program: Program, options: ReplayOptions) -> dict[str, Any]:
    """Return the peaks, what a plan served, and the coverage."""
    result = replay(program, options)
    return {
        "allocated": result.memory.allocated,
        "reserved": result.memory.reserved,
        "fallback": _fallback(result),
        "executed": result.coverage.executed,
        "total": result.coverage.total,
        "allocator": result.allocator,
    }


def _fallback(result: Any) -> int | None:
    return None if result.plan_figures is None else result.plan_figures.fallback.requests


PROGRAMS: dict[str, Callable[[Program, ReplayOptions], dict[str, Any]]] = {
    function.__name__: function for function in (sums, many, figures)
}


def main() -> None:
    """Run one program."""
    name, trace, mode, allocator = sys.argv[1:5]
    options = ReplayOptions(
        Mode(mode),
        "cuda",
        warmup=0 if name == "sums" else 2,
        iterations=998 if name == "many" else 1,
        allocator=None if allocator == "-" else allocator,
        operator_times=False,
    )
    print(json.dumps(PROGRAMS[name](build_program(open_trace(trace)), options)), flush=True)


if __name__ == "__main__":
    main()
