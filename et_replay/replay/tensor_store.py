"""The tensors of a replay in slots: bound by calls, or created when first needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch

from et_replay.program.program import Program
from et_replay.replay.contents import Contents
from et_replay.replay.creation import Maker, bytes_needed, maker, view
from et_replay.replay.prepared import Slots
from et_replay.replay.sparse import is_sparse, recorded_entries, sparse_maker
from et_replay.replay.target import Target


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What is decided once about creating the tensor of a slot.

    `make` does it on a new storage. A storage that lives serves too, which it may by one of the
    slots `fellows`, if it has `needed` bytes.
    """

    make: Maker
    fellows: tuple[int, ...]
    needed: int


class TensorStore:
    """One slot for each tensor of a program, then one for each constant of its calls.

    `slots[t]` is the tensor t or None; the extra last slot stays None, so that index -1 reads as an
    undefined tensor. A storage lives as long as a slot refers to it.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        contents: Contents,
        seed: int,
    ) -> None:
        self.slots: Slots = [*([None] * len(program.tensors)), *contents.constants, None]
        self._program = program
        self._target = target
        self._contents = contents
        self._seed = seed
        some_sparse = any(map(is_sparse, program.tensors))
        self._entries = recorded_entries(program) if some_sparse else {}
        self._recipes: dict[int, _Recipe] = {}
        self._last_created: dict[int, int] = {}
        self._of_storage: dict[int, list[int]] = defaultdict(list)
        for index, tensor in enumerate(program.tensors):
            self._of_storage[tensor.storage].append(index)

    def create(self, index: int, with_values: bool = True) -> None:
        """Fill slot `index`: a view where its storage lives, else new, with valid values if any."""
        recipe = self._recipes.get(index) or self._new_recipe(index)
        slots = self.slots
        if not recipe.fellows:
            slots[index] = recipe.make(with_values)
            return
        tensor = self._program.tensors[index]
        base = self._living(tensor.storage, recipe)
        slots[index] = recipe.make(with_values) if base is None else view(base, tensor)
        self._last_created[tensor.storage] = index

    def drop(self, storages: Iterable[int]) -> None:
        """Empty all slots of `storages`."""
        for storage in storages:
            for index in self._of_storage[storage]:
                self.slots[index] = None

    def live(self) -> list[int]:
        """List the storages that a slot refers to."""
        slots = self.slots
        return [s for s, of in self._of_storage.items() if any(slots[i] is not None for i in of)]

    def addresses(self) -> dict[int, int]:
        """Return which storage begins at each address of the replay's device, of those filled."""
        found: dict[int, int] = {}
        for storage, indices in self._of_storage.items():
            for tensor in (self.slots[index] for index in indices):
                if tensor is not None and tensor.layout is torch.strided:
                    base = tensor.untyped_storage()
                    if base.device.type == self._target.device.type:
                        found.setdefault(base.data_ptr(), storage)
        return found

    def _living(self, storage: int, recipe: _Recipe) -> torch.UntypedStorage | None:
        for slot in (self._last_created.get(storage, -1), *recipe.fellows):
            tensor = self.slots[slot]
            if tensor is not None and tensor.layout is torch.strided:
                base: torch.UntypedStorage = tensor.untyped_storage()
                if base.nbytes() >= recipe.needed:
                    return base
        return None

    def _new_recipe(self, index: int) -> _Recipe:
        tensor = self._program.tensors[index]
        storage = self._program.storages[tensor.storage]
        device, needed = self._target.place(storage.device), bytes_needed(tensor)
        requirement = self._contents.requirements.get(tensor.storage)
        size, seed = max(storage.size, needed), self._seed + tensor.storage
        if is_sparse(tensor) and device.type != "meta":
            make = sparse_maker(
                tensor, self._entries.get((tensor.dtype, tensor.shape)), device, seed
            )
        else:
            make = maker(tensor, size, device, requirement, seed)
        of_storage = self._of_storage[tensor.storage]
        saved = [slot for slot in of_storage if slot in self._contents.saved]
        if saved and device.type != "meta":
            make = partial(self._with_saved, make, saved)
        fellows = tuple(slot for slot in of_storage if slot != index)
        recipe = self._recipes[index] = _Recipe(make, fellows, needed)
        return recipe

    def _with_saved(self, make: Maker, saved: list[int], with_values: bool) -> torch.Tensor:
        """Create a tensor, then put what was saved of the tensors of its storage into it."""
        made = make(with_values)
        for slot in saved if with_values else ():
            seen = view(made.untyped_storage(), self._program.tensors[slot])
            seen.copy_(self._contents.saved[slot])
        return made
