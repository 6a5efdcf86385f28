"""Ranges of addresses that are held from a device, as they come and go; parts of them too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

_What = TypeVar("_What")


class HeldRanges(Generic[_What]):
    """Ranges by where they begin, as they came, each with what is known of it."""

    def __init__(self) -> None:
        self._ranges: dict[int, tuple[int, _What]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranges)

    def add(self, address: int, size: int, what: _What) -> None:
        """Add a range that overlaps none of the others."""
        self._ranges[address] = size, what

    def take(self, address: int, size: int) -> list[tuple[int, int, _What]]:
        """Take off a range, which may be a part of one that is held, or of several.

        Returns address, size and what is known of each part that was held.
        """
        held = self._ranges.get(address)
        if held is not None and held[0] == size:
            del self._ranges[address]
            return [(address, size, held[1])]
        end = address + size
        taken = []
        for start, (length, what) in [*self._ranges.items()]:
            stop = start + length
            if start >= end or stop <= address:
                continue
            del self._ranges[start]
            low, high = max(start, address), min(stop, end)
            taken.append((low, high - low, what))
            for left, right in ((start, low), (high, stop)):
                if left < right:
                    self._ranges[left] = right - left, what
        return taken

    def take_all(self) -> list[tuple[int, int, _What]]:
        """Do as `take` for all that is held."""
        taken = [(address, size, what) for address, (size, what) in self._ranges.items()]
        self._ranges.clear()
        return taken
