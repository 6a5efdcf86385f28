"""Recorded collectives in, prepared calls that make them on process groups out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from et_replay.execution_trace import TensorRef, tensors
from et_replay.program.program import Call
from et_replay.ranks.collective import Collective
from et_replay.ranks.kinds import BARRIERS
from et_replay.replay.communication.buffers import buffers_of
from et_replay.replay.communication.calls import IN_PLACE, Settings, launcher
from et_replay.replay.communication.choice import MESSAGES, Choice
from et_replay.replay.communication.exchange import Exchange, Transfer
from et_replay.replay.communication.making import Maker, Making
from et_replay.replay.communication.plan import ExchangePlan
from et_replay.replay.communication.wire import (
    Fit,
    Wire,
    fit_for,
    fit_root,
    fit_splits,
    wire_for,
)
from et_replay.replay.communication.world import World
from et_replay.replay.dtypes import torch_dtype
from et_replay.replay.prepared import PreparedCall, fetcher
from et_replay.replay.target import Target


class CollectivePreparer:
    """Prepares the calls of one window that make the collectives of `plan` and wait for them.

    Collectives are known by their place in `plan.collectives`.
    """

    def __init__(
        self, plan: ExchangePlan, choice: Choice, world: World, exchange: Exchange, target: Target
    ) -> None:
        self._collectives = plan.collectives
        self._waited = plan.waited()
        self._choice = choice
        self._groups = choice.groups
        self._casting = choice.casting
        self._batches = choice.batches(plan.collectives)
        self._world = world
        self._exchange = exchange
        self._target = target

    def making(self, call: Call, number: int) -> PreparedCall:
        """Prepare the call that makes collective `number`, as the job did by `call`.

        The process groups must have been created.
        """
        collective = self._collectives[number]
        buffers = buffers_of(call, collective.kind)
        wire = self._wire(collective, call)
        places = {slot: k for k, slot in enumerate(buffers.slots)}
        making = Making(
            self._exchange,
            self._transfer(collective, number, wire),
            wire,
            tuple(places[slot] for slot in buffers.given),
            tuple(places[slot] for slot in buffers.taken),
            tuple(_maker_like(ref, self._target) for ref in buffers.made),
            collective.kind in IN_PLACE,
            self._fits_to_present(collective, wire),
        )
        outputs = tuple(-1 if slot in call.inputs else slot for slot in call.outputs)
        return PreparedCall(
            making,
            fetcher(buffers.slots),
            inputs=buffers.slots,
            outputs=outputs if buffers.made else (),
        )

    def waiting(self, number: int, slots: Sequence[int] = ()) -> PreparedCall:
        """Prepare the call that waits for collective `number`, or for the batch that it is in."""
        number = self._batches.get(number, (number,))[-1]
        filled = tuple(dict.fromkeys(slot for slot in slots if slot >= 0))
        wait = partial(self._exchange.wait, number)
        return PreparedCall(wait, fetcher(()), inputs=filled, outputs=())

    def _wire(self, collective: Collective, call: Call) -> Wire:
        refs = tensors((*call.node.inputs, *call.node.outputs))
        place = next((self._target.place(ref.device) for ref in refs if ref.defined), None)
        device = self._target.device if place is None else place
        return wire_for(torch_dtype(collective.dtype), on_host=device.type != "cuda")

    def _transfer(self, collective: Collective, number: int, wire: Wire) -> Transfer:
        group = self._groups[collective.group]
        members = self._batches.get(number, ())
        device = torch.device("cpu") if wire.on_host else self._target.device
        settings = self._settings(collective, wire, device)
        waited = number in self._waited
        return Transfer(
            index=number,
            text=f"{collective.kind}, node {collective.node_id}, group {group}",
            launch=launcher(collective.kind, settings),
            launch_timed=launcher(collective.kind, _timed(settings, collective.kind)),
            group=settings.group,
            device=device,
            asynchronous=self._choice.is_asynchronous(collective, waited),
            told=not (wire.on_host and collective.kind in MESSAGES),
            opens=members[:1] == (number,),
            closes=members[-1:] == (number,),
            members=members,
        )

    def _settings(self, collective: Collective, wire: Wire, device: torch.device) -> Settings:
        present = self._choice.present(collective)
        here = {rank: k for k, rank in enumerate(present)}
        peer = collective.peer
        return Settings(
            group=self._world.group(self._casting.key(self._groups[collective.group])),
            device=device,
            timeout=self._world.timeout,
            root=here.get(collective.root or 0, 0),
            peer=None if peer is None else here[peer],
            tag=collective.tag,
            reduction=collective.reduction,
            in_splits=_splits_of_present(collective.in_splits, present, wire),
            out_splits=_splits_of_present(collective.out_splits, present, wire),
            sizes=_unequal_sizes(collective) if wire.on_host else (),
            asynchronous=self._choice.is_asynchronous(collective, False),
        )

    def _fits_to_present(self, collective: Collective, wire: Wire) -> tuple[Fit, ...]:
        """List what cuts tensors down to the members of the group that are here."""
        group, present = self._groups[collective.group], self._choice.present(collective)
        if len(present) == len(group.ranks):
            return ()
        splits = [
            _splits_of_present(each, present, wire)
            for each in (collective.in_splits, collective.out_splits)
        ]
        if any(splits):
            return (fit_splits(*splits),)
        is_root = self._settings(collective, wire, self._target.device).root == present.index(
            group.ranks.index(self._casting.rank)
        )
        fit = fit_for(collective.kind, len(group.ranks), present)
        return tuple(
            each for each in (fit, fit_root(collective.kind, len(present), is_root)) if each
        )


def _splits_of_present(splits: Sequence[int], present: Sequence[int], wire: Wire) -> list[int]:
    """Return the splits for the members of a group that are here, in elements on the wire."""
    return [splits[rank] * wire.factor for rank in present] if splits else []


def _unequal_sizes(collective: Collective) -> tuple[int, ...]:
    """Return the sizes of a list that are not all the same, which gloo does not take."""
    sizes = {"all_gather": collective.out_sizes, "reduce_scatter": collective.in_sizes}
    found = sizes.get(collective.kind, ())
    return found if len(set(found)) > 1 else ()


def _timed(settings: Settings, kind: str) -> Settings:
    """Let a call of NCCL be made so that there is a Work, which knows its time.

    A synchronous one has none (ProcessGroupNCCL.cpp, from PyTorch 2.8 on), and events around it are
    microseconds further apart.
    """
    told = settings.device.type == "cuda" and kind not in BARRIERS
    return replace(settings, asynchronous=settings.asynchronous or told)


def _maker_like(ref: TensorRef, target: Target) -> Maker:
    """Return what makes a new tensor like a recorded one."""
    dtype, device = torch_dtype(ref.dtype), target.place(ref.device)
    if ref.strides is None:
        return partial(torch.empty, ref.shape, dtype=dtype, device=device)
    return partial(torch.empty_strided, ref.shape, ref.strides, dtype=dtype, device=device)
