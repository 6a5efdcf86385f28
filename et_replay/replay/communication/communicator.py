"""The collectives of a window in, made on process groups with other ranks, and timed, out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from et_replay.errors import ReplayError, UsageError
from et_replay.program.program import Call, Program
from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Groups, group_text
from et_replay.replay.communication.calls import REDUCING
from et_replay.replay.communication.casting import Casting
from et_replay.replay.communication.choice import MESSAGES, Choice
from et_replay.replay.communication.clock import (
    EventCallClock,
    HostCallClock,
    Interval,
    call_clock_for,
    collective_times,
)
from et_replay.replay.communication.exchange import Exchange
from et_replay.replay.communication.plan import plan_exchange
from et_replay.replay.communication.preparing import CollectivePreparer
from et_replay.replay.communication.world import GroupKey, World
from et_replay.replay.lead import Lead
from et_replay.replay.operators import Unresolvable
from et_replay.replay.prepared import PreparedCall, PreparedOperation, stand_in
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
        self._device = target.device
        self._known = {collective.node_id: collective for collective in collectives}
        self._choice = Choice(groups, casting, target.device.type != "cuda")
        self._plan = plan_exchange(
            program, self._known, self._choice.is_made, self._choice.is_asynchronous
        )
        self._preparer = CollectivePreparer(self._plan, self._choice, world, exchange, target)
        self._timed = bool(self._plan.collectives)
        self._iterations: list[dict[int, Interval]] = []
        self._at_once = False
        self._clock: HostCallClock | EventCallClock = HostCallClock()

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
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        self._clock = call_clock_for(self._device)

    def prepare(self, call: Call) -> PreparedCall:
        """Prepare what makes, or waits for, a recorded collective.

        Raises Unresolvable for one that cannot be made here.
        """
        number = self._plan.numbers.get(id(call))
        if number is not None:
            return self._preparer.making(call, number)
        waited = self._plan.waits.get(id(call))
        if waited is not None:
            return self._preparer.waiting(waited, call.inputs)
        collective = self._known.get(call.node.id)
        if collective is not None and (reason := self._choice.reason(collective)):
            raise Unresolvable(reason)
        return stand_in((*call.inputs, *call.outputs))

    def add_waits(self, operations: Sequence[PreparedOperation]) -> None:
        """Let operations begin with waits for what they take, and the last one end with all."""
        waiting = self._preparer.waiting
        for k, numbers in self._plan.before.items():
            operations[k].calls[:0] = [waiting(number) for number in numbers]
        if operations:
            operations[-1].calls += [waiting(number) for number in self._plan.at_end]

    def longest(self, time: int) -> int:
        """Return the longest of the times that all processes, together, call this with."""
        longest: int = max(self._world.gather_to_all(time))
        return longest

    def meet(self) -> bool:
        """Let the device come to this when those of all other ranks do, if it can be done."""
        return self._world.meet(self._device)

    def timed(self, lead: Lead, run: Callable[[], int]) -> int:
        """Run an iteration, begun by all ranks at once, and take the time of each collective."""
        self._world.barrier()
        self._at_once = lead.take()
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
        times = collective_times(self._iterations, made, self._groups, self._casting)
        return tuple(replace(each, at_once=self._at_once) for each in times)

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


def _collectives(count: int) -> str:
    return counted(count, "collective")
