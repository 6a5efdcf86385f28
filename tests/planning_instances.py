"""Planning instances: read from files, cut out of a full rectangle, or drawn with a seed.

`training_lifetimes.py` makes those of training jobs.
"""

from __future__ import annotations

import csv
import lzma
import random
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from et_replay.events import Action, AllocationEvents, Int64Array
from et_replay.planning import CyclicPacking

KIB = 1 << 10
CAPACITY_AND_SUFFIX = re.compile(r"(\.\d+)?\.csv(\.xz)?$")
Rectangle = tuple[int, int, int, int]
"""Start and end in ticks, bottom and top in bytes."""


class Instance(NamedTuple):
    """Buffer i takes `size[i]` bytes in the ticks [start[i], end[i])."""

    start: Int64Array
    end: Int64Array
    size: Int64Array


def instance_of(rows: Iterable[tuple[int, int, int]]) -> Instance:
    """Make columns of rows of start, end and size."""
    table = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
    return Instance(*(np.ascontiguousarray(column) for column in table.T))


def read_instance(path: Path) -> Instance:
    """Read a CSV `id,lower,upper,size`, which may be compressed with xz."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt") as file:
        rows = csv.DictReader(file)
        return instance_of((int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows)


def write_instance(path: Path, instance: Instance) -> None:
    """Write what `read_instance` reads."""
    with path.open("w") as file:
        file.write("id,lower,upper,size\n")
        for index, row in enumerate(zip(*(c.tolist() for c in instance), strict=True)):
            file.write(f"{index},{','.join(map(str, row))}\n")


def files_of(folder: Path) -> dict[str, Path]:
    """Return the instances below `folder` by name: "jobs/moe", for A.1048576.csv "minimalloc/A"."""
    paths = [path for path in folder.glob("*/*") if ".csv" in path.suffixes]
    return {
        f"{path.parent.name}/{re.sub(CAPACITY_AND_SUFFIX, '', path.name)}": path
        for path in sorted(paths)
    }


def instance_of_events(events: AllocationEvents, unit: int = 512) -> Instance:
    """Return what is allocated from row to row, a tick each; what is never freed lives to the end.

    A storage lives until its memory can be used again, and sizes are rounded up to `unit`.
    """
    born: dict[int, int] = {}
    rows: dict[int, tuple[int, int, int]] = {}
    columns = [column.tolist() for column in (events.action, events.storage, events.size)]
    for tick, (action, storage, size) in enumerate(zip(*columns, strict=True)):
        if action == Action.ALLOC:
            born[storage] = tick
            rows[tick] = (tick, len(events), -(-size // unit) * unit)
        elif action in (Action.FREE, Action.FREE_COMPLETED) and storage in born:
            start = born.pop(storage)
            rows[start] = (start, tick, rows[start][2])
    return instance_of(row for row in rows.values() if row[2])


def full_rectangle(
    seed: int,
    pieces: int,
    capacity: int = 1024 * KIB,
    ticks: int = 1024 * KIB,
    unit: int = KIB,
    spared: float = 0.0,
) -> tuple[Instance, Int64Array]:
    """Cut `capacity` bytes x `ticks` into buffers, and return them shuffled, with their offsets.

    They leave no byte unused at any tick, so that the optimum is `capacity`, and the only arena
    size that is proven by the load. `spared` is the part of them that is thrown away then; those
    that live at the tick `ticks // 2` stay, and with them the optimum. All coordinates are
    multiples of `unit`.
    """
    draw = random.Random(seed)
    whole: list[Rectangle] = [(0, ticks // unit, 0, capacity // unit)]
    done: list[Rectangle] = []
    while whole and len(whole) + len(done) < pieces:
        weights = [(r[1] - r[0]) * (r[3] - r[2]) for r in whole]
        position = draw.choices(range(len(whole)), weights)[0]
        whole[position], whole[-1] = whole[-1], whole[position]
        parts = draw.choice(_CUTS)(draw, whole.pop())
        for part in parts:
            indivisible = part[1] - part[0] == 1 or part[3] - part[2] == 1
            (done if indivisible else whole).append(part)
    rectangles = [tuple(unit * x for x in r) for r in (*done, *whole)]
    middle = ticks // 2
    rectangles = [r for r in rectangles if r[0] <= middle < r[1] or draw.random() >= spared]
    draw.shuffle(rectangles)
    offsets = np.array([bottom for _, _, bottom, _ in rectangles], dtype=np.int64)
    return instance_of((start, end, top - low) for start, end, low, top in rectangles), offsets


def _between(draw: random.Random, low: int, high: int) -> int:
    """Return a place to cut [low, high), seldom near its ends."""
    return min(high - 1, max(low + 1, low + round((high - low) * draw.betavariate(2, 2))))


def _cut_time(draw: random.Random, r: Rectangle) -> list[Rectangle]:
    at = _between(draw, r[0], r[1])
    return [(r[0], at, r[2], r[3]), (at, r[1], r[2], r[3])]


def _cut_bytes(draw: random.Random, r: Rectangle) -> list[Rectangle]:
    at = _between(draw, r[2], r[3])
    return [(r[0], r[1], r[2], at), (r[0], r[1], at, r[3])]


def _cut_thin(draw: random.Random, r: Rectangle) -> list[Rectangle]:
    """Cut a long thin buffer from below, above, or out of the middle."""
    height = r[3] - r[2]
    thickness = max(1, height // draw.randint(12, 40))
    low = draw.choice([r[2], r[3] - thickness, draw.randint(r[2], r[3] - thickness)])
    edges = sorted({r[2], low, low + thickness, r[3]})
    return [(r[0], r[1], bottom, top) for bottom, top in pairwise(edges)]


def _cut_spiral(draw: random.Random, r: Rectangle) -> list[Rectangle]:
    """Cut into four around a fifth, which no sequence of straight cuts makes."""
    if r[1] - r[0] < 3 or r[3] - r[2] < 3:
        return [r]
    left, right = sorted(draw.sample(range(r[0] + 1, r[1]), 2))
    low, high = sorted(draw.sample(range(r[2] + 1, r[3]), 2))
    if draw.random() < 0.5:
        return [
            (r[0], right, r[2], low),
            (right, r[1], r[2], high),
            (left, r[1], high, r[3]),
            (r[0], left, low, r[3]),
            (left, right, low, high),
        ]
    return [
        (left, r[1], r[2], low),
        (right, r[1], low, r[3]),
        (r[0], right, high, r[3]),
        (r[0], left, r[2], high),
        (left, right, low, high),
    ]


Cut = Callable[[random.Random, Rectangle], list[Rectangle]]
_CUTS: tuple[Cut, ...] = (_cut_time, _cut_time, _cut_bytes, _cut_thin, _cut_spiral)


class Cycle(NamedTuple):
    """Buffers, and the window [begin, end) that repeats."""

    buffers: Instance
    begin: int
    end: int


def random_cycle(seed: int, count: int = 60, period: int = 100, alignment: int = 1) -> Cycle:
    """Draw a head and a window with what crosses its end, outlives it, or was there before.

    A fifth starts in the head: a third of that lives for ever, a third into the first iterations.
    Of the others most die in their iteration, a quarter in the next, and one in ten lives for up to
    three periods.
    """
    draw = random.Random(seed)
    begin = draw.choice((0, 1, period // 2, period, 3 * period))
    rows = []
    for _ in range(count):
        size = draw.choice((0, 1, 1, 2, 3, 5, 8, 13, 64, draw.randint(1, 200))) * alignment
        if begin > 0 and draw.random() < 0.2:
            start = draw.randrange(begin)
            last = (begin, begin + draw.randint(1, 4 * period), 10**12)[draw.randrange(3)]
            rows.append((start, draw.randint(start, last) if last < 10**12 else last, size))
            continue
        start = draw.randrange(begin, begin + period)
        rest = begin + period - start
        kind = draw.random()
        if kind < 0.65:
            life = draw.randint(0, rest)
        elif kind < 0.9:
            life = rest + draw.randint(0, start - begin)
        else:
            life = draw.randint(1, 3 * period)
        rows.append((start, start + life, size))
    return Cycle(instance_of(rows), begin, begin + period)


def offset_of(packing: CyclicPacking, buffer: int, iteration: int) -> int:
    """Return where a buffer lies in an iteration, counted from 0 at the window."""
    turn = iteration % packing.copies[buffer]
    return int(packing.offsets[packing.first[buffer] + turn])
