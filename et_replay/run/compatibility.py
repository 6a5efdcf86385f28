"""Lets a script that knows PyTorch's own allocator work under one from outside.

What torch refuses with such an allocator is answered here where it can be, left out with a warning
where that changes no result, and else refused in a sentence.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from et_replay import pluggable
from et_replay.formats.segment_fields import segment_fields


def answer_for_torch() -> None:
    """Replace what of torch is for its own allocator only; `pluggable.install` does the figures."""
    bindings: Any = torch._C
    bindings._cuda_memorySnapshot = _memory_snapshot
    bindings._cuda_record_memory_history = _ignore_history
    torch.compile = _without_trees(torch.compile)
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
        warnings.warn(
            "et_replay run: the history of memory is not recorded; et_replay capture records it.",
            stacklevel=3,
        )


def _without_trees(compile_function: Callable[..., Any]) -> Callable[..., Any]:
    """Let compiled functions capture CUDA graphs one by one.

    Trees of graphs, the default, read and write the state of the pools of PyTorch's own allocator
    (torch/_inductor/cudagraph_trees.py).
    """

    @functools.wraps(compile_function)
    def compile_without_trees(*words: Any, **named: Any) -> Any:
        from torch._inductor import config  # takes a second, which few scripts need

        config.triton.cudagraph_trees = False
        return compile_function(*words, **named)

    return compile_without_trees


def _refuse_pools(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "torch.cuda.MemPool needs PyTorch's own allocator; run the script without et_replay run."
    )
