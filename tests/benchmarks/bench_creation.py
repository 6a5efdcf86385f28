"""Host time of creating an input of a replay beyond torch's own calls for it, on the CPU.

Run as `python tests/benchmarks/bench_creation.py [--inputs N]`. Both sides create float tensors of
eight elements and fill them from a seeded generator, in one process, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from trace_builder import T, node, write_trace

from et_replay.formats import open_trace
from et_replay.program import Program, build_program
from et_replay.replay.contents import Contents
from et_replay.replay.target import Target
from et_replay.replay.tensor_store import TensorStore

ROUNDS = 50
CPU = torch.device("cpu")


def inputs(folder: Path, count: int) -> Program:
    """Make a program that takes `count` inputs, each alone on its storage."""
    schema = "aten::relu(Tensor self) -> Tensor"
    tensors = [T(10 + k, 10 + k, 0, 8, 4, "cpu", (2, 4)) for k in range(count)]
    nodes = [
        node(100 + k, "aten::relu", 1, inputs=[tensor], schema=schema)
        for k, tensor in enumerate(tensors)
    ]
    return build_program(open_trace(write_trace(folder / "inputs.json", *nodes)))


def created(store: TensorStore, count: int) -> float:
    """Return the nanoseconds of one creation by a replay."""
    store.drop(range(count))
    start = time.perf_counter_ns()
    for slot in range(count):
        store.create(slot)
    return (time.perf_counter_ns() - start) / count


def direct(count: int) -> float:
    """Return the nanoseconds of the same calls into torch."""
    generator = torch.Generator(CPU)
    start = time.perf_counter_ns()
    for seed in range(count):
        tensor = torch.empty_strided((2, 4), (4, 1), dtype=torch.float32, device=CPU)
        tensor.uniform_(0.0, 0.5, generator=generator.manual_seed(seed))
    return (time.perf_counter_ns() - start) / count


def main() -> None:
    """Print both times, and the median of their differences over all rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=400)
    count = parser.parse_args().inputs
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        program = inputs(Path(folder), count)
        store = TensorStore(program, Target(CPU, "cpu"), Contents(program), seed=0)
        created(store, count)  # decides all that is decided once
        pairs = [(direct(count), created(store, count)) for _ in range(ROUNDS)]
    own = statistics.median(own for own, _ in pairs)
    ours = statistics.median(ours for _, ours in pairs)
    overhead = statistics.median(ours - own for own, ours in pairs)
    print(f"direct {own:.0f} ns, created {ours:.0f} ns, overhead {overhead:.0f} ns")


if __name__ == "__main__":
    main()
