"""The tensors of a replay in slots: bound by calls, or created when first needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

from et_replay.errors import ReplayError
from et_replay.program.program import Program, Tensor
from et_replay.replay.contents import Contents
from et_replay.replay.dtypes import is_stood_for_by_bytes, torch_dtype
from et_replay.replay.prepared import Slots
from et_replay.replay.target import Target
from et_replay.replay.values import fill
from et_replay.units import format_bytes


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
        self._last_created: dict[int, int] = {}
        self._of_storage: dict[int, list[int]] = defaultdict(list)
        for index, tensor in enumerate(program.tensors):
            self._of_storage[tensor.storage].append(index)

    def create(self, index: int) -> None:
        """Fill slot `index`: a view where its storage lives, else new, with valid values."""
        tensor = self._program.tensors[index]
        storage = self._program.storages[tensor.storage]
        needed = _bytes_needed(tensor)
        base = self._living(tensor.storage, needed)
        if base is None:
            base = self._new_storage(max(storage.size, needed), storage.device)
            if base.device.type != "meta":
                self._fill(base, tensor)
        self.slots[index] = _view(base, tensor)
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

    def _new_storage(self, size: int, recorded_device: str) -> torch.UntypedStorage:
        device = self._target.place(recorded_device)
        try:
            return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ReplayError(
                f"Cannot allocate {format_bytes(size)} on {device}: this machine's memory is used"
                " up; --device meta needs none."
            ) from error

    def _living(self, storage: int, needed: int) -> torch.UntypedStorage | None:
        for index in (self._last_created.get(storage, -1), *self._of_storage[storage]):
            tensor = self.slots[index]
            if tensor is not None and tensor.layout is torch.strided:
                base: torch.UntypedStorage = tensor.untyped_storage()
                if base.nbytes() >= needed:
                    return base
        return None

    def _fill(self, base: torch.UntypedStorage, tensor: Tensor) -> None:
        """Fill a new storage as `tensor` sees it, then with what was saved of its tensors."""
        dtype = _dtype(tensor)
        count = base.nbytes() // dtype.itemsize
        whole = torch.empty(0, dtype=dtype, device=base.device).set_(base, 0, (count,), (1,))
        rows = tensor.shape[0] if len(tensor.shape) > 1 else 0
        if rows and count % rows == 0:
            whole = whole.view(rows, -1)
        requirement = self._contents.requirements.get(tensor.storage)
        fill(whole, requirement, self._seed + tensor.storage)
        for index in self._of_storage[tensor.storage]:
            if index in self._contents.saved:
                view = _view(base, self._program.tensors[index])
                view.copy_(self._contents.saved[index])


def _dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype to create `tensor` in."""
    dtype = None if is_stood_for_by_bytes(tensor.dtype) else torch_dtype(tensor.dtype)
    return dtype or torch.uint8


def _bytes_needed(tensor: Tensor) -> int:
    if 0 in tensor.shape:
        return 0
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    return (tensor.offset + extent) * max(tensor.itemsize, _dtype(tensor).itemsize)


def _view(base: torch.UntypedStorage, tensor: Tensor) -> torch.Tensor:
    empty = torch.empty(0, dtype=_dtype(tensor), device=base.device)
    return empty.set_(base, tensor.offset, tensor.shape, tensor.strides)
