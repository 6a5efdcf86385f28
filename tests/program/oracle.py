"""A slow, obvious reading of a trace: generations of storage ids with their lives, and peaks.

It shares no code with the package and looks everything up again each time it needs it:

    id   1 .. 3 4 5 6 7 ..      time runs over the ids: a node begins in id order
    node  A( B( C ) D )       and ends after its last descendant: C and B after C, D and A after D
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from program.oracle_nodes import Sight, call_of, waits_of

BEGIN, END = 0, 1
NO_ACCELERATOR = ("", "cpu", "meta")


@dataclass(eq=False)
class Generation:
    """One allocation, born at the time `birth`.

    `owner` is the position of the operator it began in, -1 for what existed before the window.
    """

    storage_id: int
    device: str
    kind: str
    owner: int
    birth: int
    sights: list[tuple[int, Sight]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return max((sight.bytes for _, sight in self.sights), default=0)

    @property
    def estimated(self) -> bool:
        return any(sight.estimated for _, sight in self.sights)


class Reading:
    """What the nodes with begin <= id < end say about storages."""

    def __init__(self, document: dict[str, Any], begin: int = 0, end: int = 1 << 62) -> None:
        every = sorted((call_of(node) for node in document["nodes"]), key=lambda call: call.id)
        before = [call for call in every if call.id < begin]
        self._known = {each.storage_id for call in before for each in call.inputs + call.outputs}
        self.calls = [call for call in every if begin <= call.id < end]
        self.position = {call.id: position for position, call in enumerate(self.calls)}
        devices = Counter(sight.device for call in every for sight in call.inputs + call.outputs)
        accelerators = [name for name, _ in devices.most_common() if name not in NO_ACCELERATOR]
        self.device = accelerators[0] if accelerators else "cpu"
        self._last_descendant = self._find_last_descendants()
        self.timeline = self._order()
        self.operations = [
            position
            for position, call in enumerate(self.calls)
            if call.operator and self.enclosing(position) == -1
        ]
        self._operation_index = {position: index for index, position in enumerate(self.operations)}
        self.generations: list[Generation] = []
        self.use: dict[tuple[int, int, int], Generation] = {}
        self._current: dict[int, Generation] = {}
        self._last_sight: dict[int, tuple[Sight, Generation | None]] = {}
        for now in range(len(self.timeline)):
            self._advance(now)
        for record, wait in waits_of(document["nodes"]).items():
            self._hold(self.position.get(record, -1), self.position.get(wait, -1))

    def _hold(self, record: int, wait: int) -> None:
        """Let what the operation around a collective's record shows live until the wait for it."""
        if record < 0 or wait < 0:
            return
        start = self.operations[self.operation(record)]
        for generation in self.generations:
            sight = next((sight for at, sight in generation.sights if at == start), None)
            if sight is not None and not self._is_recycled(generation, wait):
                generation.sights.append((wait, sight))

    def _is_recycled(self, generation: Generation, position: int) -> bool:
        """Tell whether the id of `generation` names another storage by then: it was free."""
        return any(
            each.birth > generation.birth and self.operation(each.owner) <= self.operation(position)
            for each in self.generations
            if each.storage_id == generation.storage_id and each.device == generation.device
        )

    def parents(self, position: int) -> Iterator[int]:
        """Yield the positions of a node's ancestors inside the window, nearest first."""
        seen = {position}
        while True:
            above = self.position.get(self.calls[position].parent_id, -1)
            if above == -1 or above in seen:
                return
            seen.add(above)
            yield above
            position = above

    def enclosing(self, position: int) -> int:
        """Return the nearest operator around a node, -1 at the top."""
        return next((above for above in self.parents(position) if self.calls[above].operator), -1)

    def operation(self, position: int) -> int:
        """Return the index of the operation around a node, for a label of the last one before."""
        path = [position, *self.parents(position)]
        for at in path:
            if at in self._operation_index:
                return self._operation_index[at]
        return sum(start < position for start in self.operations) - 1

    def _find_last_descendants(self) -> list[int]:
        last = list(range(len(self.calls)))
        for position in range(len(self.calls)):
            for above in self.parents(position):
                last[above] = max(last[above], position)
        return last

    def _order(self) -> list[tuple[int, int]]:
        ends: dict[int, list[int]] = {}
        for position in reversed(range(len(self.calls))):
            ends.setdefault(self._last_descendant[position], []).append(position)
        order: list[tuple[int, int]] = []
        for position in range(len(self.calls)):
            order.append((position, BEGIN))
            order.extend((ending, END) for ending in ends.get(position, ()))
        return order

    def _inside(self, position: int, owner: int) -> bool:
        return position == owner or owner in self.parents(position)

    def _takes(self, position: int, storage_id: int) -> bool:
        return any(sight.storage_id == storage_id for sight in self.calls[position].inputs)

    def _began_in(self, owner: int, storage_id: int) -> bool:
        born = self._current.get(storage_id)
        return born is not None and born.owner >= 0 and self._inside(born.owner, owner)

    def _advance(self, now: int) -> None:
        position, moment = self.timeline[now]
        call = self.calls[position]
        for index, sight in enumerate(call.inputs if moment == BEGIN else call.outputs):
            if sight.bytes == 0:
                generation = None
            elif not call.operator:
                generation = self._current.get(sight.storage_id)
            elif moment == BEGIN:
                generation = self._taken(now, position, sight)
            else:
                generation = self._given(now, position, sight)
            if generation is not None:
                generation.sights.append((position, sight))
                self.use[position, moment, index] = generation
            self._last_sight[sight.tensor_id] = (sight, generation)

    def _start(self, now: int, sight: Sight, kind: str, owner: int) -> Generation:
        born = Generation(sight.storage_id, sight.device, kind, owner, now)
        self.generations.append(born)
        self._current[sight.storage_id] = born
        return born

    def _taken(self, now: int, position: int, sight: Sight) -> Generation:
        current = self._current.get(sight.storage_id)
        owner = self.enclosing(position)
        if owner == -1:
            if current is not None:
                return current
            if self._appeared(position, sight):
                return self._start(now, sight, "implicit", position)
            return self._start(now, sight, "input", -1)
        if current is not None and (
            self._takes(owner, sight.storage_id)
            or self._began_in(owner, sight.storage_id)
            or self._comes_back(now, owner, sight.storage_id)
        ):
            return current
        return self._start(now, sight, "implicit", owner)

    def _appeared(self, position: int, sight: Sight) -> bool:
        """Tell whether a storage first seen as an input began in the window, without a node."""
        if self.calls[position].kernel:
            return sight.storage_id not in self._known
        earlier, storage = self._last_sight.get(sight.tensor_id, (sight, None))
        same_form = (earlier.shape, earlier.dtype) == (sight.shape, sight.dtype)
        return storage is not None and storage.kind != "input" and same_form

    def _may_take(self, position: int, storage_id: int) -> bool:
        """Tell whether an operator was given a storage in the open, not by the kernel around it."""
        owner = self.enclosing(position)
        if owner == -1 or self._began_in(owner, storage_id):
            return True
        return self._takes(owner, storage_id) and self._may_take(owner, storage_id)

    def _comes_back(self, now: int, owner: int, storage_id: int) -> bool:
        """Tell whether something outside `owner` takes the storage before anything makes it anew.

        A hidden take proves nothing: scratch of two kernels in a row often has one address.
        """
        for position, moment in self.timeline[now:]:
            call = self.calls[position]
            if not call.operator:
                continue
            if (
                moment == BEGIN
                and self._takes(position, storage_id)
                and not self._inside(position, owner)
                and self._may_take(position, storage_id)
            ):
                return True
            shown = any(sight.storage_id == storage_id for sight in call.outputs)
            if moment == END and shown and not self._takes(position, storage_id):
                return False
        return False

    def _given(self, now: int, position: int, sight: Sight) -> Generation:
        current = self._current.get(sight.storage_id)
        if current is not None and (
            self._takes(position, sight.storage_id)
            or self._began_in(position, sight.storage_id)
            or self.calls[position].storage_argument
        ):
            return current
        return self._start(now, sight, "produced", position)

    def last_node_id(self, generation: Generation) -> int:
        return max(self.calls[position].id for position, _ in generation.sights)

    def life(self, generation: Generation) -> tuple[int, int]:
        """Return the first and the last operation of a generation; -1 is before the first one."""
        shown = [self.operation(position) for position, _ in generation.sights]
        if generation.kind == "input":
            used = [self.operation(at) for at, _ in generation.sights if self.calls[at].operator]
            return min(used), max(shown)
        born = self.operation(generation.owner)
        return born, max(born, *shown)

    def temporary(self, generation: Generation) -> bool:
        """Tell whether a generation is seen in one operation only, and not given out by it."""
        if generation.kind == "input":
            return False
        start = self.operations[self.operation(generation.owner)]
        return all(self._inside(position, start) for position, _ in generation.sights)

    def peak(self, mode: str) -> int:
        """Return the most bytes live at once in `pre` or `lazy`, each size rounded up to 512."""
        here = [each for each in self.generations if each.device == self.device]
        kept = [each for each in here if each.kind == "input" and mode == "pre"]
        changes: list[tuple[int, int, int]] = []
        ends = {at: now for now, (at, moment) in enumerate(self.timeline) if moment == END}
        for generation in here:
            if generation in kept:
                continue
            rounded = -(-generation.size // 512) * 512
            first, last = self.life(generation)
            birth = -1 if generation.kind == "input" else generation.birth
            death = len(self.timeline)
            if self.temporary(generation):
                death = max(ends[at] for at, _ in generation.sights)
            changes.append((first, birth * 2, rounded))
            changes.append((last, death * 2 + 1, -rounded))
        live = highest = sum(-(-each.size // 512) * 512 for each in kept)
        for _, _, change in sorted(changes):
            live += change
            highest = max(highest, live)
        return highest
