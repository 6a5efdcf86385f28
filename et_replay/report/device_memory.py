"""What of a device PyTorch may hold, or is another's, in; what a person reads about it out."""

from __future__ import annotations

from et_replay.units import format_bytes, format_share


def fraction_text(fraction: float | None) -> str:
    """Say, behind a device's memory, what share of it PyTorch may hold, if not all."""
    return "" if fraction is None else f", of which PyTorch may hold {format_share(fraction)}"


def other_memory_text(other_memory: int) -> str:
    """Say how much of the device is taken to be another's."""
    if other_memory:
        return f"{format_bytes(other_memory)} of the device are not PyTorch's"
    return (
        "none: all of the device is PyTorch's; a CUDA context and libraries take some 0.5 GiB more"
        " (see --other-memory)"
    )
