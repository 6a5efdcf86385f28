"""Native allocators over a simulated device."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

class OutOfMemoryError(Exception):
    """All figures are bytes, but `event`: the row that failed, -1 where no events were run."""

    requested: int
    segment: int
    capacity: int
    allocated: int
    reserved: int
    largest_free: int
    event: int

class BlockView(TypedDict):
    address: int
    size: int
    requested_size: int
    state: str

class SegmentView(TypedDict):
    address: int
    total_size: int
    stream: int
    segment_type: str
    blocks: list[BlockView]

class Events:
    def __init__(
        self,
        action: npt.NDArray[np.int8],
        storage: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        stream: npt.NDArray[np.int64],
    ) -> None: ...

class Simulation:
    def __init__(
        self,
        capacity: int,
        *,
        tie_by_address: bool = False,
        recorded_addresses: Sequence[int] = ...,
    ) -> None: ...
    def allocate(self, storage: int, size: int, stream: int = 0) -> None: ...
    def free(self, storage: int) -> None: ...
    def run(self, events: Events, begin: int, end: int) -> None: ...
    def address(self, storage: int) -> int: ...
    def empty_cache(self) -> None: ...
    def reset_peaks(self) -> None: ...
    @property
    def allocated(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def memory_stats(self) -> dict[str, int]: ...
    def segments(self) -> list[SegmentView]: ...
