"""Marks between operations in, how long each kind of operation took out."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import torch

from et_replay.program.operation_classes import OperationClass, class_of
from et_replay.program.program import Program
from et_replay.replay.device_events import nanoseconds_between, timing_event
from et_replay.replay.result import ClassTime, OperatorTime


class OperationClock(Protocol):
    """Tells how long the operations of one iteration took, iteration after iteration."""

    def mark(self, k: int) -> None:
        """Note that operation `k` begins, or with their number that the last one is over."""

    def intervals(self) -> list[int]:
        """Return the time from each mark to the next in ns; waits for the device."""


class HostClock:
    """Reads the host's clock: for a device that is done when the call returns."""

    def __init__(self, operations: int) -> None:
        self._marks = [0] * (operations + 1)

    def mark(self, k: int) -> None:
        self._marks[k] = time.perf_counter_ns()

    def intervals(self) -> list[int]:
        return [end - begin for begin, end in pairwise(self._marks)]


class EventClock:
    """Records an event of the device's stream at each mark, the same ones in every iteration.

    Nothing waits between two marks: where the device is faster than the host that feeds it, it
    idles, and what it waits for an operation to be launched counts as time of that operation.
    """

    def __init__(self, operations: int, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.current_stream(device)
        self._events = [timing_event() for _ in range(operations + 1)]

    def mark(self, k: int) -> None:
        self._events[k].record(self._stream)

    def intervals(self) -> list[int]:
        torch.cuda.synchronize(self._device)
        return [nanoseconds_between(*marks) for marks in pairwise(self._events)]


def clock_for(device: torch.device, operations: int) -> OperationClock:
    """Make the clock of `device` for so many operations an iteration."""
    return EventClock(operations, device) if device.type == "cuda" else HostClock(operations)


def add_up(program: Program, iterations: Sequence[Sequence[int]]) -> tuple[ClassTime, ...]:
    """Add up the times of all operations, in each iteration, by class and by name."""
    kinds: dict[tuple[OperationClass, str], list[int]] = defaultdict(list)
    for k, operation in enumerate(program.operations):
        kinds[class_of(operation.node), operation.node.name].append(k)
    classes: dict[OperationClass, list[OperatorTime]] = defaultdict(list)
    for (kind, name), places in kinds.items():
        times = tuple(sum(times[k] for k in places) for times in iterations)
        classes[kind].append(OperatorTime(name, len(places), times))
    found = [
        ClassTime(kind, tuple(sorted(operators, key=lambda each: -each.median)))
        for kind, operators in classes.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.median))
