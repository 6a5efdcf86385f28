"""Memory of a device that is not there: simulators, and the allocators that they can be of."""

from et_replay.allocator_figures import IterationFigures, MemoryStatistics, PlanFigures, Served
from et_replay.simulation.allocators import (
    ALLOCATORS,
    NEWEST_VERSION,
    OLDEST_VERSION,
    PLANNED,
    SIMULATED_ONLY,
    TORCH,
    VERSIONS,
    allocator_name,
    nearest_version,
    usable_bytes,
)
from et_replay.simulation.native import (
    native_plan,
    native_requests,
    out_of_memory_of,
    segment_state,
)
from et_replay.simulation.simulator import Simulator

__all__ = [
    "ALLOCATORS",
    "NEWEST_VERSION",
    "OLDEST_VERSION",
    "PLANNED",
    "SIMULATED_ONLY",
    "TORCH",
    "VERSIONS",
    "IterationFigures",
    "MemoryStatistics",
    "PlanFigures",
    "Served",
    "Simulator",
    "allocator_name",
    "native_plan",
    "native_requests",
    "nearest_version",
    "out_of_memory_of",
    "segment_state",
    "usable_bytes",
]
