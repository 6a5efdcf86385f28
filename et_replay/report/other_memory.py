"""Bytes of a device that are not PyTorch's in, what a person reads about them out."""

from __future__ import annotations

from et_replay.units import format_bytes


def other_memory_text(other_memory: int) -> str:
    """Say how much of the device is taken to be another's."""
    if other_memory:
        return f"{format_bytes(other_memory)} of the device are not PyTorch's"
    return (
        "none: all of the device is PyTorch's; a CUDA context and libraries take some 0.5 GiB more"
        " (see --other-memory)"
    )
