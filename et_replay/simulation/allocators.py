"""The allocators and the versions of PyTorch that can be simulated, by name."""

from __future__ import annotations

from et_replay import _core

ALLOCATORS = {name: text for name, text, _ in _core.policies()}
"""The allocators by name, with a line of help each."""
SIMULATED_ONLY = frozenset(name for name, _, invented in _core.policies() if invented)
"""Those that no real device can serve: they invent addresses."""
PLANNED = "stalloc"
"""The allocator that serves a plan."""
TORCH = "torch"
"""The name of PyTorch's own allocator on a real device; settings may follow, as after others."""
VERSIONS = tuple(f"2.{minor}" for minor in range(7, 15))
OLDEST_VERSION, NEWEST_VERSION = VERSIONS[0], VERSIONS[-1]


def nearest_version(torch_version: str) -> str:
    """Return the version nearest to torch's own, such as 2.6.0+cu124, that can be imitated."""
    major, minor = map(int, torch_version.split(".")[:2])
    oldest, newest = ((2, int(each.partition(".")[2])) for each in (OLDEST_VERSION, NEWEST_VERSION))
    return "{}.{}".format(*min(max((major, minor), oldest), newest))


def allocator_name(allocator: str) -> str:
    """Return the name in "NAME:SETTINGS"."""
    return allocator.partition(":")[0]


def usable_bytes(device_memory: int, fraction: float | None) -> int:
    """Return what of a device PyTorch may use."""
    return device_memory if fraction is None else int(fraction * device_memory)
