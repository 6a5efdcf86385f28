"""Events a second through the native allocator, at several numbers of live blocks and settings.

Run as `python tests/benchmarks/bench_simulation.py [--events N]`. Sizes lie
between 512 bytes and 64 MiB, each power of two alike: 300 distinct ones as in a model whose layers
repeat, or all distinct. Planned are the same events through stalloc with a plan for all of them.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

from et_replay.events import Action, AllocationEvents, PlanColumns
from et_replay.simulation import Simulator
from et_replay.units import format_bytes

LIVE_BLOCKS = (100, 1_000, 10_000, 100_000)
DEVICE_MEMORY = 2**50
ALLOCATORS = (
    "native",
    "native:max_split_size_mb:128",
    "native:roundup_power2_divisions:4",
    "native:garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
    "expandable",
    "stalloc",
    "direct",
    "ideal",
)


def random_events(count: int, live_blocks: int, distinct_sizes: int, seed: int) -> AllocationEvents:
    """Return events that keep about `live_blocks` allocated; which one is freed next is random."""
    generator = random.Random(seed)
    sizes = [int(2 ** generator.uniform(9, 26)) for _ in range(distinct_sizes)]
    rows: list[tuple[int, int, int]] = []
    live: list[tuple[int, int]] = []
    storage = 0
    while len(rows) < count:
        if len(live) < live_blocks and (len(live) < live_blocks // 2 or generator.random() < 0.5):
            live.append((storage, generator.choice(sizes)))
            rows.append((Action.ALLOC, *live[-1]))
            storage += 1
        else:
            position = generator.randrange(len(live))
            live[position], live[-1] = live[-1], live[position]
            rows.append((Action.FREE, *live.pop()))
    table = np.array(rows, dtype=np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    action = table[:, 0].astype(np.int8)
    storages, requests = (np.ascontiguousarray(table[:, column]) for column in (1, 2))
    return AllocationEvents(action, storages, requests, zeros, zeros, zeros[:0])


def plan_as_native(events: AllocationEvents) -> PlanColumns:
    """Return a plan with the addresses that native gives, for storages that are allocated once."""
    ticks = np.arange(len(events))
    addresses = Simulator(device_memory=DEVICE_MEMORY).addresses_of(events)
    rows = np.flatnonzero(events.action == Action.ALLOC)
    end = np.full(len(events), len(events))  # by storage
    freed = events.action == Action.FREE
    end[events.storage[freed]] = ticks[freed]
    storage, size = events.storage[rows], events.size[rows]
    offset = addresses[rows] - addresses[rows].min()
    arena = int(np.max(offset + size)) + 512
    return PlanColumns(
        storage, offset, size, ticks[rows], end[storage], events.stream[rows], arena, len(events)
    )


def best_time(
    events: AllocationEvents,
    allocator: str = "native",
    plan: PlanColumns | None = None,
    repeats: int = 3,
) -> tuple[float, Simulator]:
    """Return the shortest time of a run, in seconds, and the simulator it ended with."""
    best = float("inf")
    for _ in range(repeats):
        simulator = Simulator(allocator, DEVICE_MEMORY, plan=plan)
        start = time.perf_counter()
        simulator.run(events)
        best = min(best, time.perf_counter() - start)
    return best, simulator


def lockstep_time(events: AllocationEvents) -> float:
    """Return the time of one Python call an event, in seconds."""
    columns = (events.action, events.storage, events.size)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    simulator = Simulator(device_memory=DEVICE_MEMORY)
    start = time.perf_counter()
    for action, storage, size in rows:
        if action == 0:
            simulator.allocate(storage, size)
        else:
            simulator.free(storage)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N")
    count = parser.parse_args().events
    print(" live blocks    sizes  M events/s  peak reserved  segments  M events/s planned")
    for live_blocks in LIVE_BLOCKS:
        for distinct_sizes in (300, count):
            events = random_events(count, live_blocks, distinct_sizes, seed=0)
            seconds, simulator = best_time(events)
            planned, _ = best_time(events, "stalloc", plan_as_native(events))
            stats = simulator.statistics()
            print(
                f"{live_blocks:>12} {distinct_sizes:>8} {count / seconds / 1e6:>11.2f}"
                f" {format_bytes(stats.peak_reserved_bytes):>14} {stats.peak_segments:>9}"
                f" {count / planned / 1e6:>19.2f}"
            )
    events = random_events(count, 1_000, 300, seed=0)
    print("\nM events/s with 1000 live blocks, by allocator")
    for allocator in ALLOCATORS:
        seconds, _ = best_time(events, allocator)
        print(f"{count / seconds / 1e6:>10.2f}  {allocator}")
    print(f"in lockstep, one Python call an event: {lockstep_time(events) / count * 1e9:.0f} ns")


if __name__ == "__main__":
    main()
