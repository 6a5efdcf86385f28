"""This process's place in, the processes of the replay and their process groups out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import BarrierOptions, HashStore, TCPStore

from et_replay.errors import CommunicationError, ReplayError, UsageError, first_line
from et_replay.replay.communication.beats import Store
from et_replay.replay.communication.place import Place

GroupKey = tuple[tuple[int, ...], tuple[int, ...], int]
"""The processes of a group, the ranks of the job that it stands for, and which of several it is."""


class World:
    """torch.distributed, initialised once: NCCL between GPUs, gloo between hosts' tensors.

    Words between the ranks, which are no part of the replay, go over a group of their own.
    """

    def __init__(self, place: Place, device: torch.device, timeout: float) -> None:
        self.rank = place.rank
        self.size = place.size
        self.timeout = timedelta(seconds=2 * timeout + 60)  # ours comes before PyTorch's
        self._groups: dict[GroupKey, Any] = {}
        self._initialise(place, device)
        self._words = dist.new_group(backend="gloo", timeout=self.timeout)
        self.store: Store = _store_of_its_own() if not place.alone else HashStore()

    def _initialise(self, place: Place, device: torch.device) -> None:
        if not dist.is_available():
            raise UsageError(
                "This PyTorch is built without torch.distributed: use --replay-mode comp."
            )
        backend = "gloo"
        if device.type == "cuda":
            if not dist.is_nccl_available():
                raise UsageError(
                    "This PyTorch is built without NCCL: use --replay-mode comp or --device cpu."
                )
            backend = "cpu:gloo,cuda:nccl"
            os.environ.setdefault("TORCH_NCCL_ENABLE_TIMING", "1")  # see clock.py
        # A process alone needs no rendezvous, and so no port.
        alone: dict[str, Any] = {"store": HashStore(), "rank": 0, "world_size": 1}
        try:
            dist.init_process_group(backend, timeout=self.timeout, **(alone if place.alone else {}))
        except (RuntimeError, ValueError) as error:
            raise ReplayError(
                f"Rank {place.rank} cannot join the other processes at"
                f" {os.environ.get('MASTER_ADDR')}: {first_line(error)}."
            ) from error

    def create_groups(self, wanted: Iterable[GroupKey]) -> None:
        """Create the groups that any process wants, in the same order in all processes."""
        everything = tuple(range(self.size))
        of_all = self.gather_to_all(sorted(set(wanted)))
        for key in sorted({key for keys in of_all for key in keys}):
            processes, ranks, instance = key
            if processes == everything and instance == 0 and len(ranks) == len(processes):
                group: Any = dist.group.WORLD
            else:
                with _broken_off():
                    group = dist.new_group(list(processes), timeout=self.timeout)
            self._groups[key] = group

    def group(self, key: GroupKey) -> Any:
        """Return the process group that `create_groups` made."""
        return self._groups[key]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        options = BarrierOptions()
        options.timeout = self.timeout
        with _broken_off():
            self._words.barrier(options).wait()

    def meet(self, device: torch.device) -> bool:
        """Let a device wait for those of all processes, if a group of the replay has them all."""
        if dist.group.WORLD not in self._groups.values():
            return False
        with _broken_off():
            dist.all_reduce(torch.zeros(1, device=device))
        return True

    def gather_to_all(self, value: Any) -> list[Any]:
        """Return the values of all processes in all of them."""
        values: list[Any] = [None] * self.size
        with _broken_off():
            dist.all_gather_object(values, value, group=self._words)
        return values

    def gather(self, value: Any) -> list[Any] | None:
        """Return the values of all processes in the first one, None in the others."""
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with _broken_off():
            dist.gather_object(value, values, dst=0, group=self._words)
        return values

    def spread(self, value: Any) -> Any:
        """Return the value of the first process in all of them."""
        values: list[Any] = [value]
        with _broken_off():
            dist.broadcast_object_list(values, src=0, group=self._words)
        return values[0]

    def close(self) -> None:
        """Leave torch.distributed, once nothing is under way."""
        with suppress(RuntimeError):
            dist.destroy_process_group()


@contextmanager
def _broken_off() -> Iterator[None]:
    """Turn what gloo raises where another process has ended into CommunicationError."""
    try:
        yield
    except RuntimeError as error:
        reason = f"the connection to the other ranks broke off: {first_line(error)}"
        raise CommunicationError(reason) from error


def _store_of_its_own() -> Store:
    """Connect to the rendezvous once more: another thread can be blocked on the first connection.

    torchrun's agent keeps it, else the first process does.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, is_master=False, wait_for_workers=False)
