"""Native allocators over a simulated device or a real one."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Block: TypeAlias = tuple[int, int, int, bool]
"""Size, requested size, storage (-1: inactive), whether only active."""

Segment: TypeAlias = tuple[int, int, bool, bool, tuple[int, int], list[Block]]
"""Address, stream, whether small, whether expandable, pool, blocks."""

Served: TypeAlias = tuple[int, int]
"""Requests, bytes."""

TraceEntry: TypeAlias = tuple[str, int, int, int, tuple[int, int]]
"""Action, address, size, stream, pool."""

PlanFigures: TypeAlias = tuple[int, Served, Served, Served, Served, int]
"""Arena, planned, reused, displaced, fallback, peak reserved by the fallback."""

IterationFigures: TypeAlias = tuple[
    int, int, int, int, int, Served, Served, Served, Served, Served, int, int
]
"""Peaks allocated, active and reserved; allocated and reserved at the end; planned, reused,
displaced, fallback, unmatched; expected requests, resynchronisations."""

class Failure:
    """All figures are bytes, but `event`: the row that failed, -1 where no events were run."""

    @property
    def requested(self) -> int: ...
    @property
    def segment(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def allocated(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def largest_free(self) -> int: ...
    @property
    def event(self) -> int: ...

class OutOfMemoryError(Exception):
    failure: Failure

class UndefinedBehaviorError(Exception):
    event: int

def policies() -> list[tuple[str, str, bool]]: ...

class Events:
    def __init__(
        self,
        action: npt.NDArray[np.int8],
        storage: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        stream: npt.NDArray[np.int64],
    ) -> None: ...

class Plan:
    def __init__(
        self,
        arena: int,
        period: int,
        storage: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        start: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        stream: npt.NDArray[np.int64],
    ) -> None: ...

class Simulation:
    def __init__(
        self,
        capacity: int,
        *,
        allocator: str = "native",
        settings: str = "",
        torch_version: str = "2.14",
        device_addresses: Sequence[int] = ...,
        plan: Plan | None = None,
    ) -> None: ...
    def restore(
        self,
        address: int,
        stream: int,
        small: bool,
        expandable: bool,
        pool: tuple[int, int],
        blocks: Sequence[Block],
    ) -> None: ...
    def follow(
        self,
        *,
        storage: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        stream: npt.NDArray[np.int64],
        varies: npt.NDArray[np.bool_],
        begins: Sequence[int],
        marked: bool,
    ) -> None: ...
    def begin_iteration(self, iteration: int) -> IterationFigures: ...
    def allocate(self, storage: int, size: int, stream: int = 0) -> None: ...
    def free(self, storage: int) -> None: ...
    def run(
        self,
        events: Events,
        begin: int,
        end: int,
        *,
        keep_going: bool = False,
        addresses: npt.NDArray[np.int64] | None = None,
        allocated: npt.NDArray[np.int64] | None = None,
        reserved: npt.NDArray[np.int64] | None = None,
        entries: npt.NDArray[np.int64] | None = None,
    ) -> None: ...
    def failures(self) -> list[Failure]: ...
    def reproduced(self) -> list[Failure]: ...
    def unexpected(self) -> list[int]: ...
    def address(self, storage: int) -> int: ...
    def empty_cache(self) -> None: ...
    def reset_peaks(self) -> None: ...
    def set_fraction(self, fraction: float) -> None: ...
    def record_trace(self) -> None: ...
    @property
    def allocated(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def memory_stats(self) -> dict[str, int]: ...
    def segments(self) -> list[Segment]: ...
    def plan_figures(self) -> PlanFigures | None: ...
    def trace(self) -> list[TraceEntry]: ...

def pluggable_install(
    allocator: str,
    *,
    settings: str = "",
    torch_version: str = "2.14",
    device_memory: int | None = None,
) -> None: ...
def pluggable_uninstall() -> None: ...
def pluggable_installed() -> bool: ...
def pluggable_stats(device: int) -> dict[str, int]: ...
def pluggable_reset_peaks(device: int) -> None: ...
def pluggable_segments(device: int) -> list[Segment]: ...
def pluggable_empty_cache(device: int) -> None: ...
def pluggable_plan_figures(device: int) -> PlanFigures | None: ...
def pluggable_last_failure(device: int) -> tuple[Failure, list[Segment]] | None: ...
def pluggable_adopt(
    device: int,
    plan: Plan,
    *,
    storage: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    stream: npt.NDArray[np.int64],
) -> None: ...
def pluggable_expect(device: int, begin: int, end: int) -> None: ...
def pluggable_follow(
    device: int,
    plan: Plan,
    *,
    storage: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    stream: npt.NDArray[np.int64],
    varies: npt.NDArray[np.bool_],
    begins: Sequence[int],
    marked: bool,
) -> None: ...
def pluggable_begin_iteration(iteration: int) -> dict[int, IterationFigures]: ...
def pluggable_record_trace(device: int, on: bool) -> None: ...
def pluggable_trace_length(device: int) -> int: ...
def pluggable_trace(device: int) -> list[TraceEntry]: ...
def pluggable_throw_out_of_memory_by(function: int) -> None: ...

class Buffers:
    def __init__(
        self,
        size: npt.NDArray[np.int64],
        alignment: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
        start: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        again_start: npt.NDArray[np.int64],
        again_end: npt.NDArray[np.int64],
    ) -> None: ...

def plan(
    buffers: Buffers, *, best: bool = False, timeout: float = 0.0
) -> tuple[npt.NDArray[np.int64], int, int, bool, str]: ...
def lower_bound(buffers: Buffers) -> int: ...
def find_fault(buffers: Buffers, offsets: npt.NDArray[np.int64], arena: int) -> str: ...
