"""Events on a stream of a GPU in, nanoseconds between them out."""

from __future__ import annotations

import torch

_NANOSECONDS = 1_000_000
"""In a millisecond, which is what events count in."""


def timing_event() -> torch.cuda.Event:
    """Make an event that knows when the device comes to it."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def nanoseconds(milliseconds: float) -> int:
    """Convert what events count in."""
    return round(milliseconds * _NANOSECONDS)


def nanoseconds_between(before: torch.cuda.Event, after: torch.cuda.Event) -> int:
    """Return the time from one event to the other; the device must have come to both."""
    return nanoseconds(before.elapsed_time(after))
