"""Tensors of a replay in, one collective made of them, and its results, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from et_replay.replay.communication.exchange import Exchange, Transfer
from et_replay.replay.communication.wire import Fit, Tensors, Wire

Maker = Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Making:
    """Makes one collective of the tensors that it is called with.

    `given` and `taken` are places among them; `makers` make the results where there are none.
    """

    exchange: Exchange
    transfer: Transfer
    wire: Wire
    given: tuple[int, ...]
    taken: tuple[int, ...]
    makers: tuple[Maker, ...]
    in_place: bool
    fits: tuple[Fit, ...]

    def __call__(self, *slots: torch.Tensor) -> Tensors | torch.Tensor | None:
        made = [make() for make in self.makers]
        given = [slots[k] for k in self.given]
        if made and self.in_place:
            for result, source in zip(made, given, strict=True):
                result.copy_(source)
        put = self.wire.put
        taken = [put(tensor) for tensor in made or [slots[k] for k in self.taken]]
        given = taken if self.in_place else [put(tensor) for tensor in given]
        for fit in self.fits:
            given, taken = fit(given, taken)
        self.exchange.make(self.transfer, given, taken)
        if len(made) == 1:
            return made[0]
        return made or None
