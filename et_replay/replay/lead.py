"""Iterations to be timed in, a host that is ahead of the GPU when each begins out.

A GPU that waits for the host to launch a collective has begun it by its own clock: its event before
is recorded, and its kernel not there yet.
"""

from __future__ import annotations

import time
from typing import Protocol

import torch

from et_replay.replay.iteration import Iteration

_CYCLES = 4
"""More than any GPU counts in a ns."""


class Ranks(Protocol):
    """What a rank does together with all others."""

    def longest(self, time: int) -> int: ...
    def meet(self) -> bool: ...


class Lead:
    """Keeps a GPU busy just before an iteration, so that the host launches ahead of it.

    An iteration before gives the host the lead that it has in a job. Where an iteration has `only`
    collectives the host takes longer for it than the GPU; then the GPU waits for as long as the
    rank with the slowest host takes to launch it, which the communicator tells, and then for those
    of the others: what is sent to one that comes later lies there when it comes.
    """

    def __init__(
        self,
        iteration: Iteration,
        device: torch.device,
        only: bool,
        ranks: Ranks,
    ) -> None:
        self._iteration = iteration
        self._ranks = ranks
        self._is_gpu = device.type == "cuda"
        self._cycles = 0
        if self._is_gpu and only:
            begin = time.perf_counter_ns()
            iteration.run(first=False)
            self._cycles = _CYCLES * ranks.longest(time.perf_counter_ns() - begin)

    def take(self) -> bool:
        """Give the GPU something to do before the iteration that comes next.

        Returns whether the GPUs of all ranks begin that at once.
        """
        if self._cycles:
            torch.cuda._sleep(self._cycles)  # type: ignore[no-untyped-call]
            return self._ranks.meet()
        if self._is_gpu:
            self._iteration.run(first=False)
        return False
