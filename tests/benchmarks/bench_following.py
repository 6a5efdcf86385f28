"""What it costs to find the row of a request in the list of a plan, by how requests come.

Run as `python tests/benchmarks/bench_following.py`. An allocation and its free, of 100,000 requests
an iteration of 300 or 100,000 distinct sizes, in ns; and how much of that is for the list.
"""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import numpy as np

from et_replay.events import AllocationEvents
from et_replay.simulation import Simulator

REQUESTS = 100_000
TURNS = 5


def events_of(sizes: list[int]) -> AllocationEvents:
    """Return an allocation and its free for each size."""
    action = np.tile(np.array([0, 1], dtype=np.int8), len(sizes))
    size = np.repeat(np.array(sizes, dtype=np.int64), 2)
    one, none = np.ones_like(size), np.zeros_like(size)
    return AllocationEvents(action, one, size, none, none, none[:0])


def simulator_with(sizes: list[int]) -> Simulator:
    """Return one that follows the sizes, and has no plan for any of them."""
    size = np.array(sizes, dtype=np.int64)
    storage = np.arange(len(size))
    simulator = Simulator("stalloc", 2**50)
    simulator.follow(
        SimpleNamespace(
            storage=storage,
            size=size,
            stream=np.zeros_like(size),
            varies=np.zeros(len(size), dtype=np.bool_),
            begins=(0,),
            marked=True,
            columns=None,
        )
    )
    return simulator


def pair_ns(events: AllocationEvents, simulator: Simulator, marks: bool) -> float:
    best = float("inf")
    for turn in range(TURNS):
        if marks:
            simulator.begin_iteration(turn)
        start = time.perf_counter()
        simulator.run(events)
        best = min(best, time.perf_counter() - start)
    return best / REQUESTS * 1e9


def main() -> None:
    print("   sizes  order       ns a pair  of which the list")
    for distinct in (300, REQUESTS):
        sizes = [512 * (1 + number % distinct) for number in range(REQUESTS)]
        shuffled = random.Random(0).sample(sizes, len(sizes))
        orders = {
            "as listed": sizes,
            "reversed": sizes[::-1],
            "shuffled": shuffled,
            "unknown": [size + 1 for size in sizes],
        }
        for name, order in orders.items():
            events = events_of(order)
            followed = pair_ns(events, simulator_with(sizes), marks=True)
            alone = pair_ns(events, Simulator("stalloc", 2**50), marks=False)
            print(f"{distinct:>8}  {name:<10} {followed:>10.0f} {followed - alone:>18.0f}")


if __name__ == "__main__":
    main()
