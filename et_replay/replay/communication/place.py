"""The environment in, this process's place among those that torchrun started out."""

from __future__ import annotations

import os
from dataclasses import dataclass

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun, or a scheduler in its place, sets for torch.distributed's `env://`."""


@dataclass(frozen=True)
class Place:
    """The number of a process among `size`, and among those of its host; alone it is of one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    alone: bool = True


def find_place() -> Place:
    """Return this process's place; one that nobody started as one of several is alone."""
    values = [os.environ.get(name, "") for name in _NEEDED]
    rank, size, *_ = values
    if not all(values) or not (rank.isdecimal() and size.isdecimal()):
        return Place()
    local = os.environ.get("LOCAL_RANK", "")
    return Place(int(rank), int(size), int(local) if local.isdecimal() else int(rank), alone=False)
