"""What a capture costs a training script on the CPU, outside and inside its window.

Run as `python tests/benchmarks/bench_capture.py [--iterations N]`. The same iterations run in one
process, in turns: not captured, captured before the window, and within it. On a GPU, where the host
runs ahead of the device, a part of this is hidden.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch

from et_replay.capture import capture

ROUNDS = 5
JOBS = {"small operations (width 32)": 32, "large operations (width 512)": 512}


def job(width: int) -> Callable[[], None]:
    """Make an iteration of training: about 400 operations of a size that `width` tells."""
    layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(64, width)

    def iteration() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return iteration


def times(iteration: Callable[[], None], count: int) -> list[float]:
    """Time `count` iterations, in milliseconds, after one that is not counted."""
    result = []
    for number in range(count + 1):
        start = time.perf_counter_ns()
        iteration()
        if number:
            result.append((time.perf_counter_ns() - start) / 1e6)
    return result


@contextmanager
def captured(skip: int, iterations: int) -> Iterator[None]:
    """Capture to a folder that goes."""
    with (
        tempfile.TemporaryDirectory() as name,
        capture(Path(name), skip=skip, iterations=iterations),
    ):
        yield


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20, help="a round's (default: 20)")
    count = parser.parse_args().iterations
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "not captured": nullcontext,
        "outside": lambda: captured(10**6, 1),
        "inside": lambda: captured(1, 10**6),
    }
    for name, width in JOBS.items():
        iteration = job(width)
        times(iteration, count)
        measured: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, enter in ways.items():
                with enter():
                    measured[way] += times(iteration, count)
        plain, outside, inside = map(statistics.median, measured.values())
        print(
            f"{name}: {plain:.3f} ms an iteration; captured, outside the window {outside:.3f} ms"
            f" ({outside / plain:.3f}), inside {inside:.3f} ms ({inside / plain:.2f})"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
