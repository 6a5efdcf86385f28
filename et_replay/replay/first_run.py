"""The first execution of every call: what fails, or would, is mended for all iterations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from et_replay.errors import headline
from et_replay.replay.conforming import is_laid_out_as
from et_replay.replay.prepared import PreparedCall, PreparedOperation, flatten, unsupported
from et_replay.replay.result import Outcome
from et_replay.replay.tensor_store import TensorStore

_REFUSED = "not have a deterministic implementation"
"""In what PyTorch raises where all must be deterministic (at::Context::alertNotDeterministic)."""


class FirstRun:
    """Runs calls that have not run before.

    `steady` says that every iteration finds the same slots filled, which is so where nothing is
    flushed.
    """

    def __init__(self, store: TensorStore, policy: str, steady: bool) -> None:
        self._store = store
        self._policy = policy
        self._steady = steady

    def run(self, operation: PreparedOperation, call: PreparedCall) -> Any:
        """Run `call`, its inputs filled and checked first.

        Indices are checked because on a GPU one out of bounds takes the whole context down.
        """
        call.inputs = self._filled(call)
        self._enforce_bounds(operation, call)
        try:
            result = call.run(self._store.slots)
        except RuntimeError as error:
            if not torch.are_deterministic_algorithms_enabled() or _REFUSED not in str(error):
                raise
            call.function = partial(_as_it_is, call.function)  # as the job must have called it
            result = call.run(self._store.slots)
        return self._conformed(operation, call, result)

    def replace(self, operation: PreparedOperation, call: PreparedCall, error: Exception) -> None:
        """Put what the policy asks for in the place of a call that failed, in any iteration."""
        for slot in call.overwritten:  # which nothing has written to now
            self._store.slots[slot] = None
        reason = headline(error, qualified=False)
        call.become(unsupported(operation, call.inputs, call.outputs, reason, self._policy))
        self._filled(call)

    def _filled(self, call: PreparedCall) -> tuple[int, ...]:
        """Create the inputs that nothing has put out; return those to check in later iterations."""
        slots = self._store.slots
        missing = tuple(slot for slot in call.inputs if slots[slot] is None)
        for slot in missing:
            self._store.create(slot, slot not in call.overwritten)
        return missing if self._steady else call.inputs

    def _enforce_bounds(self, operation: PreparedOperation, call: PreparedCall) -> None:
        for slot, requirement in call.bounds:
            tensor = self._store.slots[slot]
            if tensor is None or requirement.admits(tensor):
                continue
            if (slot, requirement) not in call.enforced:
                call.mend(enforced=((slot, requirement),))
            if requirement.counts(tensor):
                # Its results then have their recorded shapes, and `_conformed` sees to it.
                call.conforms = False
                reason = "its mask is given the recorded number of true entries"
            else:
                reason = "values that replay computed out of bounds are clamped"
            operation.degrade(Outcome.EXECUTED, reason)

    def _conformed(self, operation: PreparedOperation, call: PreparedCall, result: Any) -> Any:
        """Give results of another shape or layout than recorded the recorded one, from now on.

        The layout of a view is left alone: it must go on sharing its storage.
        """
        leaves = [leaf for leaf in flatten(result) if isinstance(leaf, torch.Tensor)]
        refs = [ref for ref in call.recorded if ref.defined]
        if call.conforms or len(leaves) != len(refs):
            return result
        pairs = list(zip(leaves, refs, strict=True))
        if any(tuple(leaf.shape) != ref.shape for leaf, ref in pairs):
            difference = "shape"
        elif call.fresh and not all(is_laid_out_as(leaf, ref) for leaf, ref in pairs):
            difference = "layout"
        else:
            return result
        call.mend(conforms=True)
        operation.degrade(
            Outcome.EXECUTED,
            f"its result has another {difference} here, and is given the recorded one",
        )
        return call.conform(result)


def _as_it_is(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an operator that has no deterministic way."""
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode(0)
    try:
        return function(*args, **kwargs)
    finally:
        torch.set_deterministic_debug_mode(mode)
