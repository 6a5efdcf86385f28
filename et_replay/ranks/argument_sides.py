"""The name of an argument of a collective in, whether its tensors go into the call or come out."""

from __future__ import annotations

_BOTH = ("tensors", "tensor")


def goes_in(name: str) -> bool:
    """Tell whether other ranks may get what is in the argument."""
    return not name.startswith(("out", "sparse"))


def comes_out(name: str) -> bool:
    """Tell whether the call writes to the argument."""
    return name in _BOTH or name.startswith("out")
