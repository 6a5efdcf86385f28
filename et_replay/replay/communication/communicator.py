"""Recorded collectives in, prepared calls that make them on process groups out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from et_replay.errors import ReplayError, UsageError
from et_replay.execution_trace import TensorRef, tensors
from et_replay.program.program import Call, Program
from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Groups, group_text
from et_replay.ranks.kinds import BARRIERS
from et_replay.replay.communication.buffers import buffers_of
from et_replay.replay.communication.calls import IN_PLACE, REDUCING, Settings, launcher
from et_replay.replay.communication.casting import Casting
from et_replay.replay.communication.choice import MESSAGES, Choice
from et_replay.replay.communication.clock import (
    EventClock,
    HostClock,
    Interval,
    clock_for,
    collective_times,
)
from et_replay.replay.communication.exchange import Exchange, Transfer
from et_replay.replay.communication.making import Maker, Making
from et_replay.replay.communication.plan import plan_exchange
from et_replay.replay.communication.wire import (
    Fit,
    Wire,
    fit_for,
    fit_root,
    fit_splits,
    wire_for,
)
from et_replay.replay.communication.world import GroupKey, World
from et_replay.replay.dtypes import torch_dtype
from et_replay.replay.lead import Lead
from et_replay.replay.operators import Unresolvable
from et_replay.replay.prepared import PreparedCall, PreparedOperation, fetcher, stand_in
from et_replay.replay.result import CollectiveTimes
from et_replay.replay.target import Target
from et_replay.units import counted


class Communicator:
    """Makes the collectives of one window, and knows when each has ended."""

    def __init__(
        self,
        program: Program,
        collectives: Sequence[Collective],
        groups: Groups,
        casting: Casting,
        world: World,
        exchange: Exchange,
        target: Target,
    ) -> None:
        self._groups = groups
        self._casting = casting
        self._world = world
        self._exchange = exchange
        self._target = target
        self._known = {collective.node_id: collective for collective in collectives}
        self._choice = Choice(groups, casting, target.device.type != "cuda")
        self._plan = plan_exchange(
            program, self._known, self._choice.is_made, self._choice.is_asynchronous
        )
        self._waited = self._plan.waited()
        self._batches = self._choice.batches(self._plan.collectives)
        self._timed = bool(self._plan.collectives)
        self._iterations: list[dict[int, Interval]] = []
        self._clock: HostClock | EventClock = HostClock()

    @property
    def is_timed(self) -> bool:
        """Whether a process makes collectives, so that all begin iterations together for times."""
        return self._timed

    def connect(self) -> None:
        """Create the process groups, together with all other processes.

        Raises ReplayError where the windows of two ranks hold other collectives of a group: a trace
        as a whole may fit the others, and yet its window end earlier; UsageError where a message
        from any rank is received, and not all are played.
        """
        problems = self._world.gather_to_all(self._choice.problem_of(self._known.values()))
        if problem := next(filter(None, problems), ""):
            raise UsageError(problem)
        self._compare()
        used = {collective.group for collective in self._plan.collectives}
        self._world.create_groups(self._casting.key(self._groups[group]) for group in used)

    def _compare(self) -> None:
        made: dict[GroupKey, list[str]] = defaultdict(list)
        for each in self._plan.collectives:
            if each.kind not in MESSAGES:
                made[self._casting.key(self._groups[each.group])].append(each.kind)
        told = self._world.gather_to_all((self._timed, dict(made)))
        self._timed = any(is_timed for is_timed, _ in told)
        of_all = [theirs for _, theirs in told]
        for key in sorted({key for theirs in of_all for key in theirs}):
            other, *processes = key[0]
            known = of_all[other].get(key, [])
            for process in processes:
                kinds = of_all[process].get(key, [])
                if kinds != known:
                    raise ReplayError(
                        f"The windows do not fit together: in group {group_text(key[1])} rank"
                        f" {other} makes {_collectives(len(known))} and rank {process}"
                        f" {len(kinds)}{'' if len(kinds) != len(known) else ' others'}; --window"
                        " chooses one in which all make the same."
                    )

    def begin(self) -> None:
        """Let NCCL use the GPU of this process; an allocator for it must have been chosen."""
        if self._target.device.type == "cuda":
            torch.cuda.set_device(self._target.device)
        self._clock = clock_for(self._target.device)

    def prepare(self, call: Call) -> PreparedCall:
        """Prepare what makes, or waits for, a recorded collective.

        Raises Unresolvable for one that cannot be made here.
        """
        number = self._plan.numbers.get(id(call))
        if number is not None:
            return self._prepared(call, number)
        waited = self._plan.waits.get(id(call))
        if waited is not None:
            return self._waiting(waited, call.inputs)
        collective = self._known.get(call.node.id)
        if collective is not None and (reason := self._choice.reason(collective)):
            raise Unresolvable(reason)
        return stand_in((*call.inputs, *call.outputs))

    def add_waits(self, operations: Sequence[PreparedOperation]) -> None:
        """Let operations begin with waits for what they take, and the last one end with all."""
        for k, numbers in self._plan.before.items():
            operations[k].calls[:0] = [self._waiting(number) for number in numbers]
        if operations:
            operations[-1].calls += [self._waiting(number) for number in self._plan.at_end]

    def longest(self, time: int) -> int:
        """Return the longest of the times that all processes, together, call this with."""
        longest: int = max(self._world.gather_to_all(time))
        return longest

    def meet(self) -> None:
        """Let the device come to this at the same time as those of all other ranks."""
        self._world.meet(self._target.device)

    def timed(self, lead: Lead, run: Callable[[], int]) -> int:
        """Run an iteration, begun by all ranks at once, and take the time of each collective."""
        self._world.barrier()
        lead.take()
        self._clock.start()
        self._exchange.clock = self._clock
        try:
            elapsed = run()
            self._iterations.append(self._clock.intervals())
        finally:
            self._exchange.clock = None
        return elapsed

    def times(self) -> tuple[CollectiveTimes, ...]:
        """Return the times that were taken."""
        made = self._plan.collectives
        return collective_times(self._iterations, made, self._groups, self._casting)

    def notes(self) -> tuple[str, ...]:
        """Say what of the collectives is not as in the job, or not known to be."""
        made = self._plan.collectives
        unknown = sum(each.reduction is None for each in made if each.kind in REDUCING)
        guessed = sum(not each.group_told for each in made)
        notes = [*self._groups.notes, *self._casting.notes()]
        if unknown:
            notes.append(f"The trace does not tell how {_collectives(unknown)} reduce: they add.")
        if guessed:
            notes.append(
                f"The trace does not tell the group of {_collectives(guessed)}: each is made in"
                " one that it fits."
            )
        return tuple(notes)

    def _waiting(self, number: int, slots: Sequence[int] = ()) -> PreparedCall:
        """Make the call that waits for collective `number`, or for the batch that it is in."""
        number = self._batches.get(number, (number,))[-1]
        filled = tuple(dict.fromkeys(slot for slot in slots if slot >= 0))
        wait = partial(self._exchange.wait, number)
        return PreparedCall(wait, fetcher(()), inputs=filled, outputs=())

    def _prepared(self, call: Call, number: int) -> PreparedCall:
        collective = self._plan.collectives[number]
        buffers = buffers_of(call, collective.kind)
        wire = self._wire(collective, call)
        transfer = self._transfer(collective, number, wire)
        places = {slot: k for k, slot in enumerate(buffers.slots)}
        making = Making(
            self._exchange,
            transfer,
            wire,
            tuple(places[slot] for slot in buffers.given),
            tuple(places[slot] for slot in buffers.taken),
            tuple(maker(ref, self._target) for ref in buffers.made),
            collective.kind in IN_PLACE,
            self._fits(collective, wire),
        )
        outputs = tuple(-1 if slot in call.inputs else slot for slot in call.outputs)
        return PreparedCall(
            making,
            fetcher(buffers.slots),
            inputs=buffers.slots,
            outputs=outputs if buffers.made else (),
        )

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
            in_splits=self._kept(collective.in_splits, present, wire.factor),
            out_splits=self._kept(collective.out_splits, present, wire.factor),
            sizes=self._sizes(collective) if wire.on_host else (),
            asynchronous=self._choice.is_asynchronous(collective, False),
        )

    def _kept(self, splits: Sequence[int], present: Sequence[int], factor: int) -> list[int]:
        return [splits[rank] * factor for rank in present] if splits else []

    def _sizes(self, collective: Collective) -> tuple[int, ...]:
        """Return the sizes of a list that are not all the same, which gloo does not take."""
        sizes = {"all_gather": collective.out_sizes, "reduce_scatter": collective.in_sizes}
        found = sizes.get(collective.kind, ())
        return found if len(set(found)) > 1 else ()

    def _fits(self, collective: Collective, wire: Wire) -> tuple[Fit, ...]:
        """List what cuts tensors down to the members of the group that are here."""
        group, present = self._groups[collective.group], self._choice.present(collective)
        if len(present) == len(group.ranks):
            return ()
        splits = [
            self._kept(each, present, wire.factor)
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


def _timed(settings: Settings, kind: str) -> Settings:
    """Let a call of NCCL be made so that there is a Work, which knows its time.

    A synchronous one has none (ProcessGroupNCCL.cpp, from PyTorch 2.8 on), and events around it are
    microseconds further apart.
    """
    told = settings.device.type == "cuda" and kind not in BARRIERS
    return replace(settings, asynchronous=settings.asynchronous or told)


def maker(ref: TensorRef, target: Target) -> Maker:
    """Return what makes a new tensor like a recorded one."""
    dtype, device = torch_dtype(ref.dtype), target.place(ref.device)
    if ref.strides is None:
        return partial(torch.empty, ref.shape, dtype=dtype, device=device)
    return partial(torch.empty_strided, ref.shape, ref.strides, dtype=dtype, device=device)


def _collectives(count: int) -> str:
    return counted(count, "collective")
