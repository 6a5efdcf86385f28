"""Imports of what needs PyTorch in, a sentence where it is missing or broken out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from et_replay.errors import ReplayError, one_line


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """Turn a failing import of torch, which takes a second and may be missing, into ReplayError."""
    try:
        yield
    except (ImportError, OSError) as error:
        if isinstance(error, ModuleNotFoundError):
            if error.name == "torch":
                message = f"{what} needs PyTorch, which is missing: pip install torch."
                raise ReplayError(message) from error
            if (error.name or "").startswith("et_replay"):  # not torch's fault
                raise
        reason = one_line(error)
        raise ReplayError(f"{what} needs PyTorch, which cannot be imported: {reason}.") from error
