"""Recorded collectives in, which of them a replay makes, and how, out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from et_replay.program.communication import WAIT
from et_replay.ranks.collective import Collective
from et_replay.ranks.groups import Groups
from et_replay.ranks.kinds import BARRIERS, RECEIVE, SEND
from et_replay.replay.communication.calls import KINDS
from et_replay.replay.communication.casting import Casting

MESSAGES = (SEND, RECEIVE)


@dataclass(frozen=True)
class Choice:
    """Decides by what the groups are, who plays them, and whether a GPU does."""

    groups: Groups
    casting: Casting
    on_host: bool

    def is_made(self, collective: Collective) -> bool:
        """Tell whether a collective can be made."""
        return not self.reason(collective)

    def reason(self, collective: Collective) -> str:
        """Say in a phrase why a collective cannot be made; "" where it can, or is a wait."""
        if collective.kind == WAIT:
            return ""
        if collective.kind not in KINDS:
            return f"torch.distributed has no {collective.kind}"
        if collective.group < 0:
            return "the trace does not tell its group"
        if collective.kind in MESSAGES and not self._has_peer(collective):
            return "no process plays the rank at its other end"
        return ""

    def problem_of(self, collectives: Iterable[Collective]) -> str:
        """Say in a sentence why none can be made by so few processes; "" where they can.

        What is received from any rank may be sent by one that is played, which would wait for it.
        """
        for each in collectives:
            if each.group < 0:
                continue
            if each.kind == RECEIVE and each.peer is None and not self._has_peer(each):
                return (
                    f"Rank {self.casting.rank} receives at node {each.node_id} from any rank of"
                    f" group {self.groups[each.group]}, and the trace does not tell from which, so"
                    " that all of them must be replayed; --replay-mode comp replays without"
                    " collectives."
                )
        return ""

    def _has_peer(self, collective: Collective) -> bool:
        """Tell whether the other end of a message is played, or any end that it can have."""
        present = self.present(collective)
        if collective.peer is None:
            return len(present) == len(self.groups[collective.group].ranks)
        return collective.peer in present

    def present(self, collective: Collective) -> tuple[int, ...]:
        """List the members of its group that are played, by their ranks in it."""
        return self.casting.present(self.groups[collective.group])

    def is_asynchronous(self, collective: Collective, waited: bool) -> bool:
        """Tell how to make a call, where the trace may not.

        Synchronous messages could wait for each other. On the host a call that the job did not wait
        for at once could as well; waiting where its result is needed is never too early.
        """
        if collective.kind in MESSAGES:
            return collective.asynchronous is not False
        if collective.asynchronous is not None:
            return collective.asynchronous
        return waited or (self.on_host and collective.kind not in BARRIERS)

    def batches(self, collectives: Sequence[Collective]) -> dict[int, tuple[int, ...]]:
        """Find messages that NCCL was given as one batch: these have one sequence number.

        Made one by one, each could wait for the other end of another. gloo knows no batches.
        """

        def batch(pair: tuple[int, Collective]) -> tuple[int, ...]:
            number, each = pair
            if each.kind not in MESSAGES or each.sequence is None:
                return (number,)
            return each.group, each.sequence

        if self.on_host:
            return {}
        runs = [[k for k, _ in run] for _, run in groupby(enumerate(collectives), batch)]
        return {number: tuple(run) for run in runs if len(run) > 1 for number in run}
