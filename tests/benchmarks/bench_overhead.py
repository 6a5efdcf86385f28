"""Host time of a replayed operation beyond calling its operator directly, on the CPU.

Run as `python tests/benchmarks/bench_overhead.py [--operations N]`. Both sides call the same
dispatcher overloads on tensors of eight elements, in one process, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from trace_builder import T, node, write_trace

from et_replay.formats import open_trace
from et_replay.program import Mode, Program, build_program
from et_replay.replay import ReplayOptions, replay

ROUNDS = 15
CASES: dict[str, tuple[str, int, Callable[..., object]]] = {
    "add": (
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        2,
        torch.ops.aten.add.Tensor._op,
    ),
    "relu": ("aten::relu(Tensor self) -> Tensor", 1, torch.ops.aten.relu.default._op),
    "addcmul": (
        "aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
        3,
        torch.ops.aten.addcmul.default._op,
    ),
}


def chain(folder: Path, case: str, operations: int) -> Program:
    """Make a program in which every operation takes weights and puts out a new tensor."""
    schema, arity, _ = CASES[case]
    name = schema.partition("(")[0].partition(".")[0]
    weights = [T(10 + i, 10 + i, 0, 8, 4, "cpu") for i in range(arity)]
    scalars = [1] if "Scalar" in schema else []
    nodes = [
        node(
            100 + k,
            name,
            1,
            inputs=[*weights, *scalars],
            outputs=[T(10_000 + k, 10_000 + k, 0, 8, 4, "cpu")],
            schema=schema,
        )
        for k in range(operations)
    ]
    return build_program(open_trace(write_trace(folder / f"{case}.json", *nodes)))


def replayed(program: Program, mode: Mode) -> float:
    """Return the nanoseconds of one replayed operation, the best of a few iterations."""
    result = replay(program, ReplayOptions(mode=mode, device="cpu", warmup=1, iterations=3))
    return min(result.iteration_times) / result.coverage.total


def direct(case: str, operations: int) -> float:
    """Return the nanoseconds of one direct call of the case's operator."""
    _, arity, function = CASES[case]
    arguments = [torch.rand(8) for _ in range(arity)]
    times = []
    with torch.inference_mode():
        for _ in range(3):
            start = time.perf_counter_ns()
            for _ in range(operations):
                function(*arguments)
            times.append(time.perf_counter_ns() - start)
    return min(times) / operations


def main() -> None:
    """Print a line a case: both times, and the median of their differences over all rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=2000)
    operations = parser.parse_args().operations
    print(f"{'case':<8} {'mode':<5} {'direct':>9} {'replayed':>9} {'overhead':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            program = chain(Path(folder), case, operations)
            for mode in (Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE):
                pairs = [(direct(case, operations), replayed(program, mode)) for _ in range(ROUNDS)]
                own = statistics.median(own for own, _ in pairs)
                ours = statistics.median(ours for _, ours in pairs)
                overhead = statistics.median(ours - own for own, ours in pairs)
                print(
                    f"{case:<8} {mode.value:<5} {own:>6.0f} ns {ours:>6.0f} ns {overhead:>6.0f} ns"
                )


if __name__ == "__main__":
    main()
