"""A rank's trace in, its process groups out.

What the trace's lists of groups lack is derived from the calls recorded in a group: its name, its
size, and the first of its ranks with their distance. Names, and the pointers of older traces,
differ between ranks. A group is therefore its ranks, and which of several with these ranks it is,
in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from et_replay.execution_trace import ExecutionTrace
from et_replay.program.communication import RECORD, WAIT, Record, read_record
from et_replay.ranks.group_list import DEFAULT, ListedGroup, listed_groups
from et_replay.units import counted

_SHOWN = 8
"""Ranks of a group that a text lists before it leaves some out."""

_DIGITS = 6
"""Up to which the name of a group is a count; a pointer has more, and no order."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: global ranks in the order of the ranks in the group.

    `instance` counts the groups of the same ranks from 0, in the order in which they were made.
    `names` are those that this rank's trace has for it.
    """

    ranks: tuple[int, ...]
    instance: int = 0
    names: frozenset[str] = frozenset()
    description: str = ""
    backend: str = ""

    @property
    def key(self) -> tuple[tuple[int, ...], int]:
        """What is the same for this group in the traces of all its ranks."""
        return self.ranks, self.instance

    def __str__(self) -> str:
        return group_text(self.ranks, self.instance)


def group_text(ranks: Sequence[int], instance: int = 0) -> str:
    """Write a group for a person: `(0..7)`, `(0, 8 .. 56)`, `(0, 3, 4)`; #2 is a second one."""
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 0
    if len(ranks) > 2 and tuple(ranks) == tuple(range(ranks[0], ranks[-1] + stride, stride or 1)):
        inside = (
            f"{ranks[0]}..{ranks[-1]}" if stride == 1 else f"{ranks[0]}, {ranks[1]} .. {ranks[-1]}"
        )
    else:
        inside = ", ".join(map(str, ranks[:_SHOWN]))
        inside += f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"({inside})" + (f" #{instance + 1}" if instance else "")


def and_more(numbers: Sequence[int]) -> str:
    """List numbers for a person: `0, 1 and 2`, or the first few and how many more there are."""
    if len(numbers) > _SHOWN:
        return f"{', '.join(map(str, numbers[:_SHOWN]))} and {len(numbers) - _SHOWN} more"
    *before, last = map(str, numbers)
    return f"{', '.join(before)} and {last}" if before else last


def named_ranks(ranks: Sequence[int]) -> str:
    """Name ranks for a person: `rank 3`, `ranks 0, 1 and 2`, or the first few of many."""
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {and_more(ranks)}"


@dataclass(frozen=True)
class Groups:
    """The groups that `rank` is a member of, and what could not be known, in sentences.

    Where a trace has no word of any group, there is one of all ranks if `world_size` is known; and
    `is_size_told` by the trace itself.
    """

    rank: int
    world_size: int | None
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    _by_name: Mapping[str, int] = field(default_factory=dict, repr=False)
    is_size_told: bool = False

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> Group:
        return self.groups[index]

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def find(self, name: str) -> int:
        """Return the index of the group that the trace calls `name`, -1 where it is not known."""
        return self._by_name.get(name, -1)

    def find_ranks(self, ranks: Sequence[int]) -> int:
        """Return the index of the first group of these ranks, -1 where there is none."""
        wanted = tuple(ranks)
        return next((k for k, group in enumerate(self.groups) if group.ranks == wanted), -1)

    def of_size(self, size: int | None) -> tuple[int, ...]:
        """List the groups that a call may be in of which only the group's size is known, if so."""
        return tuple(
            k for k, group in enumerate(self.groups) if size is None or len(group.ranks) == size
        )


def process_groups(trace: ExecutionTrace, rank: int, world_size: int | None = None) -> Groups:
    """Read the groups of a trace of `rank`; `world_size` counts where the trace tells none."""
    listed, notes = listed_groups(trace)
    records = list(_records(trace))
    told = _world_size(listed, records)
    world_size = told or world_size
    found = _Found(rank, world_size, notes)
    for entry in listed:
        found.add_listed(entry)
    known = {name for entry in listed for name in entry.names}
    found.add_recorded([record for record in records if record.group_name not in known])
    if not found.ranks and world_size is not None:
        found.add(tuple(range(world_size)), frozenset({"0"}), DEFAULT, "")
    return replace(found.groups(), is_size_told=told is not None)


class _Found:
    """Groups as they are found, each by its ranks and counted among those of the same ranks."""

    def __init__(self, rank: int, world_size: int | None, notes: list[str]) -> None:
        self._rank = rank
        self._world_size = world_size
        self._notes = notes
        self.ranks: list[tuple[int, ...]] = []
        self._found: list[Group] = []
        self._by_name: dict[str, int] = {}
        self._listed = False

    def add(
        self, ranks: tuple[int, ...], names: frozenset[str], description: str, backend: str
    ) -> None:
        """Add a group, unless this rank is none of its members."""
        known = next((self._by_name[name] for name in names if name in self._by_name), None)
        if self._rank not in ranks or (known is not None and self.ranks[known] == ranks):
            return
        self._by_name.update(dict.fromkeys(names, len(self._found)))
        instance = self.ranks.count(ranks)
        self._found.append(Group(ranks, instance, names, description, backend))
        self.ranks.append(ranks)

    def add_listed(self, entry: ListedGroup) -> None:
        """Add a group of a list, or a note where it does not say which ranks it has."""
        self._listed = True
        ranks, size = entry.ranks, entry.size or self._world_size
        if ranks is None and size is not None:
            ranks = tuple(range(size))
        if ranks is not None:
            self.add(ranks, entry.names, entry.description, entry.backend)

    def add_recorded(self, records: Sequence[Record]) -> None:
        """Add the groups that only calls name, in the order of numbers, else of first calls."""
        first: dict[str, Record] = {}
        for record in records:
            before = first.get(record.group_name)
            if record.group_name and (before is None or before.start is None):
                first[record.group_name] = record
        numbered = all(name.isdecimal() and len(name) <= _DIGITS for name in first)
        names = sorted(first, key=int) if numbered else list(first)
        unknown, whole = [], []
        for name in names:
            record = first[name]
            ranks = _derived(record, self._rank, self._world_size)
            if ranks is None and record.size is None and not self._listed and self._world_size:
                ranks = tuple(range(self._world_size))
                whole.append(name)
            if ranks is None:
                unknown.append(f"{name} of {record.size} ranks" if record.size else name)
            else:
                self.add(ranks, frozenset({name}), record.group_description, "")
        if whole:
            self._notes.append(
                f"The trace has no word of the ranks in {_named(whole)}; all of"
                f" {self._world_size} are taken to be."
            )
        if unknown:
            self._notes.append(f"The trace does not tell which ranks are in {_named(unknown)}.")

    def groups(self) -> Groups:
        """Return all of them."""
        return Groups(
            self._rank,
            self._world_size,
            tuple(self._found),
            tuple(self._notes),
            self._by_name,
        )


def _named(groups: Sequence[str]) -> str:
    return f"{counted(len(groups), 'group')}: {', '.join(groups[:_SHOWN])}"


def _records(trace: ExecutionTrace) -> Iterator[Record]:
    for position, name in enumerate(trace.names):
        if name == RECORD:
            record = read_record(trace.node(position))
            if record is not None and record.name != WAIT:
                yield record


def _derived(record: Record, rank: int, world_size: int | None) -> tuple[int, ...] | None:
    """Work out the ranks of a group from its size, and its first rank and their distance."""
    size, start, stride = record.size, record.start, record.stride
    if size == 1:
        return (rank,)
    if record.group_description == DEFAULT or (size is not None and size == world_size):
        return tuple(range(size or world_size or 0)) or None
    if size is None or start is None or not stride:
        return None
    ranks = tuple(range(start, start + size * stride, stride))
    return ranks if rank in ranks else None


def _end(record: Record) -> int:
    """Return one more than the last rank of a record's group, as far as that is told."""
    size = record.size or 0
    if record.start is None or not record.stride:
        return size
    return record.start + (size - 1) * record.stride + 1


def _world_size(listed: Sequence[ListedGroup], records: Sequence[Record]) -> int | None:
    """Return the number of ranks: the size of the default group, or what any group needs."""
    sizes = [e.size for e in listed if e.description == DEFAULT or "0" in e.names]
    sizes += [r.size for r in records if r.group_description == DEFAULT]
    told = [size for size in sizes if size]
    if told:
        return max(told)
    needed = [entry.size or 0 for entry in listed]
    needed += [max(entry.ranks or (-1,)) + 1 for entry in listed]
    needed += [_end(record) for record in records]
    return max(needed, default=0) or None
