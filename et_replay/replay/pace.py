"""Iterations in, one after another, how long each took out."""

from __future__ import annotations

from itertools import pairwise

import torch

from et_replay.replay.device_events import nanoseconds_between, timing_event
from et_replay.replay.iteration import Iteration


class Pace:
    """Runs iterations apart, each on an idle device, or in a row.

    In a row, as in a job, the host runs ahead of the device; a pause of one rank after each of them
    would be one of all that wait for it in the next collective.
    """

    def __init__(self, iteration: Iteration, device: torch.device, in_a_row: bool) -> None:
        self._iteration = iteration
        self._device = device
        self._in_a_row = in_a_row and device.type == "cuda"
        self._ends: list[torch.cuda.Event] = []
        self._times: list[int] = []

    def run(self, first: bool) -> None:
        """Run one iteration; the `first` one of all is run with more care."""
        if not self._in_a_row:
            self._times.append(self._iteration.timed(first))
            return
        if not self._ends:
            self._ends.append(self._event())
        self._iteration.run(first)
        self._ends.append(self._event())

    def times(self) -> list[int]:
        """Return the ns of each iteration that came to its end."""
        if self._ends:
            torch.cuda.synchronize(self._device)
        return [*self._times, *(nanoseconds_between(*ends) for ends in pairwise(self._ends))]

    def _event(self) -> torch.cuda.Event:
        event = timing_event()
        event.record(torch.cuda.current_stream(self._device))
        return event
