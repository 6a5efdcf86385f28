"""Lets a script that knows PyTorch's own allocator work under one from outside.

What torch refuses with such an allocator is answered here where it can be, left out with a warning
where that changes no result, and else refused in a sentence.
"""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import torch

from et_replay import pluggable
from et_replay.formats.segment_fields import segment_fields


def answer_for_torch() -> None:
    """Replace what of torch is for its own allocator only; `pluggable.install` does the figures."""
    bindings: Any = torch._C
    bindings._cuda_memorySnapshot = _memory_snapshot
    bindings._cuda_record_memory_history = _ignore_history
    _keep_cudnn_benchmark_off()
    torch.cuda.MemPool.__init__ = _refuse_pools  # type: ignore[method-assign]


def _memory_snapshot(*_: object) -> dict[str, object]:
    """Say what is reserved on all devices; of its history nothing is known."""
    segments = [
        segment_fields(segment, device=device)
        for device in range(torch.cuda.device_count())
        for segment in pluggable.segments(device)
    ]
    return {
        "segments": segments,
        "device_traces": [[] for _ in range(torch.cuda.device_count())],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _ignore_history(enabled: str | None = None, *_: object, **__: object) -> None:
    if enabled is not None:
        _warn_once("the history of memory is not recorded; et_replay capture records it")


def _keep_cudnn_benchmark_off() -> None:
    def set_benchmark(on: bool) -> None:
        if on:
            _warn_once("torch.backends.cudnn.benchmark stays off: it needs PyTorch's own allocator")

    bindings: Any = torch._C
    bindings._set_cudnn_benchmark = set_benchmark
    vars(type(torch.backends.cudnn))["benchmark"].setter = set_benchmark


def _refuse_pools(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "torch.cuda.MemPool needs PyTorch's own allocator; run the script without et_replay run."
    )


def _warn_once(what: str) -> None:
    if what not in _warned:
        _warned.add(what)
        warnings.warn(f"et_replay run: {what}.", stacklevel=4)


_warned: set[str] = set()
