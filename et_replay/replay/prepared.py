"""Operations made ready to run: all that can be decided before the first iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

import torch

from et_replay.errors import ReplayError
from et_replay.execution_trace import TensorRef
from et_replay.program.program import Call
from et_replay.replay.arguments import BoundCall
from et_replay.replay.conforming import conform
from et_replay.replay.requirement import Requirement
from et_replay.replay.result import Outcome
from et_replay.replay.values import enforce

Slots = list[Any]
"""Tensors, None where there is none yet; behind them the constants of calls, and at last a None
that stays one.
"""


@dataclass(slots=True)
class PreparedCall:
    """A bound call: its arguments come from slots, its results go to slots.

    `fetch` takes all positional arguments out of the slots at once. `lists` pairs the position of a
    list argument with its slots, `storages` the position of a storage with a slot whose tensor lies
    in it; the keyword ones pair names. `inputs` are the slots that must be filled before. `outputs`
    are the slots of the results, flattened; -1 for a result that needs no slot. `recorded` are the
    results as the trace shows them, `fresh` if none of them is a view of an argument; `conforms` is
    set for a call whose results get the recorded shapes afterwards. `bounds` says what slots must
    hold, and `enforced` which of them have to be brought to it before every call. Slots that are
    `overwritten` whole by the call need no values before it. `made_from` is what the call was
    prepared from, if it runs an operator.
    """

    function: Callable[..., Any]
    fetch: Callable[[Slots], Sequence[Any]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    lists: tuple[tuple[int, Callable[[Slots], Sequence[Any]]], ...] = ()
    storages: tuple[tuple[int, int], ...] = ()
    keyword_singles: tuple[tuple[str, int], ...] = ()
    keyword_lists: tuple[tuple[str, Callable[[Slots], Sequence[Any]]], ...] = ()
    recorded: tuple[TensorRef, ...] = ()
    fresh: bool = False
    conforms: bool = False
    bounds: tuple[tuple[int, Requirement], ...] = ()
    enforced: tuple[tuple[int, Requirement], ...] = ()
    overwritten: frozenset[int] = frozenset()
    made_from: tuple[Call, BoundCall] | None = None
    plain: bool = field(init=False)
    """Whether `function(*fetch(slots))` is all there is to it."""
    output: int | None = field(init=False)
    """The slot of the result, where there is exactly one and it needs one."""

    def __post_init__(self) -> None:
        if self.kwargs:
            self.function = partial(self.function, **self.kwargs)
        self.plain = not (
            self.lists
            or self.storages
            or self.keyword_singles
            or self.keyword_lists
            or self.conforms
            or self.enforced
        )
        needed = [slot for slot in self.outputs if slot >= 0]
        self.output = needed[0] if len(self.outputs) == len(needed) == 1 else None

    def mend(
        self, enforced: tuple[tuple[int, Requirement], ...] = (), conforms: bool = False
    ) -> None:
        """From now on bring these slots to what they must hold too, or conform the results."""
        self.enforced += enforced
        self.conforms |= conforms
        self.plain = False

    def run(self, slots: Slots) -> Any:
        """Call the function; the caller has filled the inputs and binds the results."""
        for slot, requirement in self.enforced:
            enforce(slots[slot], requirement)
        args = list(self.fetch(slots))
        for position, fetch in self.lists:
            args[position] = fetch(slots)
        for position, slot in self.storages:
            args[position] = slots[slot].untyped_storage()
        kwargs = {name: slots[slot] for name, slot in self.keyword_singles}
        for name, fetch in self.keyword_lists:
            kwargs[name] = fetch(slots)
        result = self.function(*args, **kwargs)
        return self.conform(result) if self.conforms else result

    def conform(self, result: Any) -> Any:
        """Give `result` the recorded shapes."""
        leaves = [
            leaf for leaf in flatten(result) if leaf is None or isinstance(leaf, torch.Tensor)
        ]
        return conform(self.recorded, leaves)

    def become(self, other: PreparedCall) -> None:
        """Turn into `other`, in place."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))


@dataclass(slots=True)
class PreparedOperation:
    """An operation as it will be replayed: what to call, and which slots to empty afterwards."""

    node_id: int
    name: str
    calls: list[PreparedCall]
    cleared: tuple[int, ...] = ()
    outcome: Outcome = Outcome.EXECUTED
    reasons: list[str] = field(default_factory=list)
    configured: bool = False
    """Whether the user's configuration leaves it out."""

    def degrade(self, outcome: Outcome, reason: str) -> None:
        """Note a deviation; the worst outcome counts, and only its reasons."""
        rank = list(Outcome).index
        if rank(outcome) < rank(self.outcome):
            return
        if outcome is not self.outcome:
            self.outcome = outcome
            self.reasons.clear()
        if reason not in self.reasons:
            self.reasons.append(reason)


def unsupported(
    operation: PreparedOperation,
    inputs: tuple[int, ...],
    results: tuple[int, ...],
    reason: str,
    policy: str,
) -> PreparedCall:
    """Note that a call of `operation` cannot run, and make what stands for it.

    By `policy` that is a call that executes nothing, but after which the slots `results` are
    filled (substitute), or not even these (skip), or a ReplayError (fail). The slots `inputs` are
    filled in any case.
    """
    if policy == "fail":
        raise ReplayError(
            f"Cannot replay node {operation.node_id} ({operation.name}): {reason};"
            " --on-unsupported substitute goes on without it."
        )
    skipped = policy == "skip"
    operation.degrade(Outcome.SKIPPED if skipped else Outcome.SUBSTITUTED, reason)
    return stand_in(inputs if skipped else (*inputs, *results))


def stand_in(slots: Iterable[int]) -> PreparedCall:
    """Make the call that executes nothing, but after which these slots are filled."""
    filled = tuple(dict.fromkeys(slot for slot in slots if slot >= 0))
    return PreparedCall(_nothing, fetcher(()), inputs=filled, outputs=())


def _nothing() -> None:
    return None


def fetcher(slots: tuple[int, ...]) -> Callable[[Slots], Sequence[Any]]:
    """Make the function that takes these slots out of the table, in one C call."""
    if len(slots) > 1:
        return itemgetter(*slots)
    return itemgetter(slice(slots[0], slots[0] + 1 or None) if slots else slice(0))


def bind_results(slots: Slots, outputs: tuple[int, ...], result: Any) -> None:
    """Put the tensors of `result`, flattened, into the slots `outputs`."""
    if isinstance(result, (tuple, list)) and len(result) == len(outputs):
        for slot, value in zip(outputs, result, strict=True):
            if type(value) is torch.Tensor:
                if slot >= 0:
                    slots[slot] = value
            elif value is not None:
                break  # It has tensors inside, or no slot.
        else:
            return
    at = 0
    for value in flatten(result) if outputs else ():
        if at == len(outputs):
            return
        if isinstance(value, torch.Tensor) and outputs[at] >= 0:
            slots[outputs[at]] = value
        at += value is None or isinstance(value, torch.Tensor)


def flatten(result: Any) -> list[Any]:
    """List the leaves of nested tuples and lists in order."""
    leaves: list[Any] = []
    pending = [result]
    while pending:
        value = pending.pop()
        if isinstance(value, (tuple, list)):
            pending.extend(reversed(value))
        else:
            leaves.append(value)
    return leaves
