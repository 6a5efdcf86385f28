"""Signs of life of this rank in, those of the others out, through a store."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

PREFIX = "et_replay"


class Store(Protocol):
    """What is used of torch.distributed's stores."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, value: int) -> int: ...
    def check(self, keys: list[str]) -> bool: ...


class Beats:
    """Counts up while rank `rank` lives, and knows when others last did."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._beats = 0
        self._seen: dict[int, tuple[bytes, float]] = {}

    def beat(self) -> None:
        """Give a sign of life."""
        self._beats += 1
        self._store.set(f"{PREFIX}/beat/{self._rank}", str(self._beats))

    def look_at(self, ranks: Iterable[int]) -> None:
        """Look for signs of `ranks`."""
        now = time.monotonic()
        for rank in ranks:
            key = f"{PREFIX}/beat/{rank}"
            beat = self._store.get(key) if self._store.check([key]) else b""
            if rank != self._rank and self._seen.get(rank, (None, 0))[0] != beat:
                self._seen[rank] = beat, now

    def silent(self, seconds: float) -> list[int]:
        """List the ranks looked at that gave none for so long."""
        now = time.monotonic()
        return sorted(rank for rank, (_, since) in self._seen.items() if now - since > seconds)
