"""Calls in, whether PyTorch tells its observers of them out: in a recording, of some alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_silenced = threading.local()


@contextmanager
def silenced() -> Iterator[None]:
    """Let PyTorch tell its observers of nothing that this thread does but what is `observed`."""
    _silenced.now = True
    _tell(False)
    try:
        yield
    finally:
        _silenced.now = False
        _tell(True)


def observed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, of which observers are told."""
    if not getattr(_silenced, "now", False):
        return function(*args, **kwargs)
    _tell(True)
    try:
        return function(*args, **kwargs)
    finally:
        _tell(False)


def _tell(told: bool) -> None:
    """Say whether observers are told; one that is stopped meanwhile prints so."""
    torch._C._autograd._enable_record_function(told)
