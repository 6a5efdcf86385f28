"""The state of this process in, its place among the processes of a job out."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    """Which process of a job this is; `known_by` says how well that is known."""

    rank: int
    world_size: int
    known_by: str


BY_DEFAULT, BY_ENVIRONMENT, BY_TORCH = "default", "RANK", "torch.distributed"


def rank_of_process() -> int:
    """Return the rank by which this process's files are named."""
    return find_rank().rank


def find_rank() -> Rank:
    """Ask torch.distributed where it is initialised, else the environment; else this is rank 0."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size(), BY_TORCH)
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if rank.isdigit():
        return Rank(int(rank), int(world_size) if world_size.isdigit() else 1, BY_ENVIRONMENT)
    return Rank(0, 1, BY_DEFAULT)


def device_of_process() -> str:
    """Name the device that this process computes on: `cuda:0`, or `cpu` until it uses CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "cpu"
    return f"cuda:{torch.cuda.current_device()}"
