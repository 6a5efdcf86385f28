"""What allocators count: memory as PyTorch does, and how the requests of a plan were served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStatistics:
    """Counters as in `torch.cuda.memory_stats()`; peaks count from the last `reset_peaks`."""

    allocated_bytes: int
    peak_allocated_bytes: int
    active_bytes: int
    peak_active_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    requested_bytes: int
    peak_requested_bytes: int
    segments: int
    peak_segments: int
    alloc_retries: int
    ooms: int
    device_allocs: int
    device_frees: int

    @classmethod
    def of(cls, stats: Mapping[str, int]) -> MemoryStatistics:
        """Pick them out of counters under torch's names."""
        return cls(
            allocated_bytes=stats["allocated_bytes.all.current"],
            peak_allocated_bytes=stats["allocated_bytes.all.peak"],
            active_bytes=stats["active_bytes.all.current"],
            peak_active_bytes=stats["active_bytes.all.peak"],
            reserved_bytes=stats["reserved_bytes.all.current"],
            peak_reserved_bytes=stats["reserved_bytes.all.peak"],
            requested_bytes=stats["requested_bytes.all.current"],
            peak_requested_bytes=stats["requested_bytes.all.peak"],
            segments=stats["segment.all.current"],
            peak_segments=stats["segment.all.peak"],
            alloc_retries=stats["num_alloc_retries"],
            ooms=stats["num_ooms"],
            device_allocs=stats["num_device_alloc"],
            device_frees=stats["num_device_free"],
        )


@dataclass(frozen=True)
class Served:
    """Requests, and the bytes that they asked for."""

    requests: int
    bytes: int


_Served = tuple[int, int]


@dataclass(frozen=True)
class PlanFigures:
    """How requests were served where there is a plan: each as planned, reused or fallback.

    `displaced` are requests for which the plan has an address that was in use, of another stream,
    or too small: they are counted as reused or fallback, too, unless they failed.
    `fallback_peak_reserved` counts from the last `reset_peaks`; the most that was reserved is at
    most `arena`, which is as the device gives it, and this.
    """

    arena: int
    planned: Served
    """At the address that the plan has for it."""
    reused: Served
    """In space of the arena that was idle."""
    displaced: Served
    fallback: Served
    """From the caching allocator: for want of idle space, or as it belongs to a private pool."""
    fallback_peak_reserved: int

    @classmethod
    def of(
        cls,
        figures: tuple[int, _Served, _Served, _Served, _Served, int],
    ) -> PlanFigures:
        """Name what the native allocator tells."""
        arena, *served, fallback_peak_reserved = figures
        planned, reused, displaced, fallback = (Served(*counted) for counted in served)
        return cls(arena, planned, reused, displaced, fallback, fallback_peak_reserved)


@dataclass(frozen=True)
class IterationFigures:
    """What happened in an iteration: its own peaks, whatever a script resets, and its end.

    The served ones are as in PlanFigures; an allocator without a plan serves all as `fallback`.
    """

    peak_allocated_bytes: int
    peak_active_bytes: int
    peak_reserved_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    planned: Served
    reused: Served
    displaced: Served
    fallback: Served
    unmatched: Served
    """Requests that the plan's list does not have there; private pools are not asked for in it."""
    expected: int
    """How many requests the list has for the iteration; 0 without a list."""
    resynchronisations: int
    """How often the place in the list was lost, and found elsewhere."""

    @classmethod
    def of(
        cls,
        figures: tuple[
            int, int, int, int, int, _Served, _Served, _Served, _Served, _Served, int, int
        ],
    ) -> IterationFigures:
        """Name what the native allocator tells."""
        planned, reused, displaced, fallback, unmatched = (Served(*it) for it in figures[5:10])
        return cls(*figures[:5], planned, reused, displaced, fallback, unmatched, *figures[10:])
