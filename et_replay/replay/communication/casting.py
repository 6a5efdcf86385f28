"""The processes of a replay and the ranks of a job in, who plays whom out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from et_replay.errors import UsageError
from et_replay.ranks.groups import Group
from et_replay.replay.communication.place import Place
from et_replay.replay.communication.world import GroupKey
from et_replay.units import counted


@dataclass(frozen=True)
class Casting:
    """Process `process` of `processes` plays one of `ranks`; the job has `job_size` ranks.

    With more processes than ranks the job runs several times, side by side. With fewer, the ranks
    from the first on are played, and groups have those members alone.
    """

    process: int
    processes: int
    ranks: tuple[int, ...]
    job_size: int

    @property
    def rank(self) -> int:
        """The rank of the job that this process plays."""
        return self.ranks[self.process % len(self.ranks)]

    @property
    def differs(self) -> bool:
        """Whether there are other processes than the job had."""
        return self.processes != self.job_size or len(self.ranks) < self.job_size

    def present(self, group: Group) -> tuple[int, ...]:
        """List the members of a group, by their ranks in it, that a process plays beside this."""
        return tuple(k for k, rank in enumerate(group.ranks) if self._player(rank) is not None)

    def key(self, group: Group) -> GroupKey:
        """Name the group of the processes that play the members of `group` beside this."""
        players = (self._player(rank) for rank in group.ranks)
        processes = tuple(player for player in players if player is not None)
        return processes, group.ranks, group.instance

    def notes(self) -> tuple[str, ...]:
        """Say what is not as in the job."""
        if not self.differs:
            return ()
        here = counted(self.processes, "process", "processes")
        job = counted(self.job_size, "rank")
        if self.processes > len(self.ranks):
            copies = -(-self.processes // len(self.ranks))
            said = f"the job runs {copies} times side by side, each copy with groups of its own"
            if self.processes % len(self.ranks) or len(self.ranks) < self.job_size:
                said += ", which lack the members that no process plays"
        else:
            said = (
                "groups have only the members that are played, so collectives move less and between"
                " fewer, and messages to and from the others are left out"
            )
        return (f"A job of {job} is replayed by {here}: {said}; times are not those of the job.",)

    def _player(self, rank: int) -> int | None:
        if rank not in self.ranks:
            return None
        copy = self.process // len(self.ranks)
        player = copy * len(self.ranks) + self.ranks.index(rank)
        return player if player < self.processes else None


def cast(place: Place, ranks: Sequence[int], job_size: int, allowed: bool) -> Casting:
    """Give this process its rank; raises UsageError for another number of them unless `allowed`."""
    casting = Casting(place.rank, place.size, tuple(ranks), job_size)
    if casting.differs and not allowed:
        raise UsageError(
            f"The job has {counted(job_size, 'rank')}, expected a process for each, got"
            f" {place.size}: torchrun --nproc-per-node {job_size} -m et_replay starts them on one"
            " host; --allow-other-world-size replays all the same, and --replay-mode comp the file"
            " of one rank, in a single process and without the collectives."
        )
    return casting
