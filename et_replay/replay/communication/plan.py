"""A window's operations and the collectives in it in, what a replay makes and waits for out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from et_replay.program.collectives import UnderWay, is_wait, waited_for
from et_replay.program.program import Call, Program
from et_replay.ranks.collective import Collective
from et_replay.ranks.kinds import SEND
from et_replay.replay.communication.buffers import written_by


@dataclass(frozen=True)
class ExchangePlan:
    """Which calls of a window make which collective, and when these are waited for.

    `collectives` are those to make, in order; `numbers` and `waits` map calls to a place in it, by
    their `id`, as a damaged trace repeats those of nodes. The others are waited for before an
    operation (`before`), by its place, or when all have run (`at_end`).
    """

    collectives: list[Collective] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    before: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    at_end: list[int] = field(default_factory=list)

    def waited(self) -> set[int]:
        """List the collectives that the trace waits for."""
        return set(self.waits.values())


def plan_exchange(
    program: Program,
    known: Mapping[int, Collective],
    is_made: Callable[[Collective], bool],
    is_asynchronous: Callable[[Collective, bool], bool],
) -> ExchangePlan:
    """Go through the window; `known` maps ids of nodes to collectives, of which some are made.

    `is_asynchronous` is told whether a wait follows.
    """
    plan = ExchangePlan()
    at: list[int] = []
    pending: list[UnderWay] = []
    for k, operation in enumerate(program.operations):
        for call in operation.calls:
            storages = program.storages_of((*call.inputs, *call.outputs))
            if is_wait(call.node):
                done = waited_for(call.node, storages, pending)
                if done is not None:
                    pending.remove(done)
                    plan.waits[id(call)] = done.number
            elif (collective := _known(call, known)) is not None and is_made(collective):
                number = plan.numbers[id(call)] = len(plan.collectives)
                told = set() if collective.sequence is None else {collective.sequence}
                pending.append(UnderWay(number, storages, told, None))
                plan.collectives.append(collective)
                at.append(k)
    _add_waits(plan, program, at, is_asynchronous)
    return plan


def _known(call: Call, known: Mapping[int, Collective]) -> Collective | None:
    return known.get(call.node.id) if call.node.is_collective else None


def _add_waits(
    plan: ExchangePlan,
    program: Program,
    at: Sequence[int],
    is_asynchronous: Callable[[Collective, bool], bool],
) -> None:
    """Wait for what the trace does not wait for: gloo records no wait.

    The job had waited before it touched a result at the latest. When it waited for what it sent
    cannot be known: never before that was waited for by others, so at the end.
    """
    waited = plan.waited()
    open_until: dict[int, int] = {}
    left: dict[int, None] = {}
    made: dict[int, list[int]] = defaultdict(list)
    for number, k in enumerate(at):
        made[k].append(number)
    written = _written(plan, program)
    for k, operation in enumerate(program.operations):
        calls = (operation.call, *operation.calls)
        storages = program.storages_of(t for call in calls for t in (*call.inputs, *call.outputs))
        for storage in storages & open_until.keys():
            number = open_until[storage]
            if number in left:
                del left[number]
                plan.before[k].append(number)
        for number in made.get(k, ()):
            collective = plan.collectives[number]
            if number in waited or not is_asynchronous(collective, False):
                continue
            left[number] = None
            if collective.kind != SEND:
                open_until.update(dict.fromkeys(written[number], number))
    plan.at_end.extend(left)


def _written(plan: ExchangePlan, program: Program) -> dict[int, set[int]]:
    """Map each collective to the storages that it writes to."""
    found = {}
    for operation in program.operations:
        for call in operation.calls:
            number = plan.numbers.get(id(call))
            if number is not None:
                slots = written_by(call, plan.collectives[number].kind)
                found[number] = program.storages_of(slots)
    return found
