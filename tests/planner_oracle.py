"""Blocks and their offsets in, what is wrong with them out; and the smallest arena of a few blocks.

Slow, obvious, plain Python, and independent of all that makes plans:

    bytes
    2 |    +-----+          `Block(1, ((0, 4),))` at 0 and `Block(1, ((2, 6),))` at 1 share the
    1 |----+---+ |          ticks [2, 4) and no byte. With an offset of 0 the second would share
    0 +---------------      both: an overlap.
      0  2   4   6  ticks
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

Span = tuple[int, int]
FREE_TO_CHOOSE = -1


class Block(NamedTuple):
    """`size` bytes for all of `spans`, which are half-open and do not meet each other.

    `offset` is the one that it must have.
    """

    size: int
    spans: tuple[Span, ...]
    alignment: int = 1
    offset: int = FREE_TO_CHOOSE

    def takes_memory(self) -> bool:
        return self.size > 0 and any(start < end for start, end in self.spans)

    def meets(self, other: Block) -> bool:
        """Say whether both take memory at the same tick."""
        return any(
            max(start, other_start) < min(end, other_end)
            for start, end in self.spans
            for other_start, other_end in other.spans
        )


def blocks_of(
    start: Sequence[int],
    end: Sequence[int],
    size: Sequence[int],
    alignment: Sequence[int] | None = None,
    offset: Sequence[int] | None = None,
    again_start: Sequence[int] | None = None,
    again_end: Sequence[int] | None = None,
) -> list[Block]:
    """Make blocks from columns, which may be arrays."""
    count = len(start)

    def column(values: Sequence[int] | None, default: int) -> list[int]:
        return [default] * count if values is None else [int(value) for value in values]

    return [
        Block(bytes_, (span,) if again[0] >= again[1] else (span, again), step, at)
        for span, again, bytes_, step, at in zip(
            zip(column(start, 0), column(end, 0), strict=True),
            zip(column(again_start, 0), column(again_end, 0), strict=True),
            column(size, 0),
            column(alignment, 1),
            column(offset, FREE_TO_CHOOSE),
            strict=True,
        )
    ]


def peak_load(blocks: Iterable[Block]) -> int:
    """Return the most bytes that live at once: no arena is smaller."""
    changes: dict[int, int] = {}
    for block in blocks:
        for start, end in block.spans:
            if start < end:
                changes[start] = changes.get(start, 0) + block.size
                changes[end] = changes.get(end, 0) - block.size
    load = peak = 0
    for tick in sorted(changes):
        load += changes[tick]
        peak = max(peak, load)
    return peak


def arena_of(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    """Return the end of the highest block."""
    return max(
        (
            int(at) + block.size
            for block, at in zip(blocks, offsets, strict=True)
            if block.takes_memory()
        ),
        default=0,
    )


def find_fault(
    blocks: Sequence[Block], offsets: Sequence[int], arena: int, *, pairs: bool | None = None
) -> str:
    """Return what is wrong with a plan first, "" for nothing.

    Overlaps are looked for in all pairs of up to 400 blocks, or as `pairs` says, else by a sweep.
    """
    if len(blocks) != len(offsets):
        return f"{len(offsets)} offsets for {len(blocks)} blocks"
    offsets = [int(at) for at in offsets]
    for index, (block, at) in enumerate(zip(blocks, offsets, strict=True)):
        if not block.takes_memory():
            continue
        if at < 0 or at + block.size > arena:
            return f"{index} takes [{at}, {at + block.size}) of an arena of {arena} bytes"
        if at % block.alignment:
            return f"{index} lies at {at}, no multiple of {block.alignment}"
        if block.offset not in (FREE_TO_CHOOSE, at):
            return f"{index} lies at {at}, not at {block.offset}"
    if pairs is None:
        pairs = len(blocks) <= 400
    return (_overlap_of_pairs if pairs else _overlap_by_sweep)(blocks, offsets)


def _overlap_of_pairs(blocks: Sequence[Block], offsets: Sequence[int]) -> str:
    solid = [index for index, block in enumerate(blocks) if block.takes_memory()]
    for one, other in combinations(solid, 2):
        apart = (
            offsets[one] + blocks[one].size <= offsets[other]
            or offsets[other] + blocks[other].size <= offsets[one]
        )
        if not apart and blocks[one].meets(blocks[other]):
            return f"{one} and {other} overlap"
    return ""


def _overlap_by_sweep(blocks: Sequence[Block], offsets: Sequence[int]) -> str:
    """Walk through time with the live blocks sorted by their offset."""
    events = [
        (tick, begins, index)
        for index, block in enumerate(blocks)
        if block.takes_memory()
        for span in block.spans
        if span[0] < span[1]
        for begins, tick in enumerate((span[1], span[0]))  # what ends at a tick comes first
    ]
    live: list[tuple[int, int, int]] = []
    for _, begins, index in sorted(events):
        entry = (offsets[index], offsets[index] + blocks[index].size, index)
        if not begins:
            del live[bisect_left(live, entry)]
            continue
        position = bisect_left(live, entry)
        # What lives does not overlap, so that its ends rise too: the neighbours tell.
        if position > 0 and live[position - 1][1] > entry[0]:
            return f"{live[position - 1][2]} and {index} overlap"
        if position < len(live) and live[position][0] < entry[1]:
            return f"{index} and {live[position][2]} overlap"
        insort(live, entry)
    return ""


def smallest_arena(blocks: Sequence[Block]) -> int | None:
    """Return the size of the smallest arena, None where fixed offsets forbid any: up to 7 blocks.

    Blocks without fixed offset are put, in every order, each at the lowest multiple of its
    alignment that is free of all fixed blocks and of those put before. This finds an optimum. For
    take, among all packings into a smallest arena, one with the least sum of offsets, and put its
    blocks in the order of their offsets. Let p be the place found for block b, o its offset, and
    those before it be where they are in the packing. As o is free, p <= o. Were p < o, then b could
    move to p: it is free of the fixed blocks and of those before; and one that comes later and
    shares a tick with b lies at o + size(b) or above, where b at p does not reach. Then the sum
    was not the least. So p = o, for one block after the other. It holds for any spans and
    alignments, as it asks only which pairs share a tick. In this order places never fall, so
    orders in which they do are left out, and of blocks at the same place all orders but one.
    """
    solid = [block for block in blocks if block.takes_memory()]
    fixed = [block for block in solid if block.offset >= 0]
    free = [block for block in solid if block.offset < 0]
    if find_fault(fixed, [block.offset for block in fixed], 2**62):
        return None
    bound = max(peak_load(solid), arena_of(fixed, [block.offset for block in fixed]))
    best = sum(block.size + block.alignment for block in solid) + bound

    def put(placed: list[tuple[int, Block]], rest: list[Block], floor: Span, top: int) -> None:
        nonlocal best
        if not rest:
            best = min(best, top)
        for position, block in enumerate(rest):
            at = _lowest_place(block, placed)
            place = (at, free.index(block))
            new_top = max(top, at + block.size)
            if place < floor or new_top >= best or best == bound:
                continue
            others = rest[:position] + rest[position + 1 :]
            put([*placed, (at, block)], others, place, new_top)

    start = arena_of(fixed, [block.offset for block in fixed])
    put([(block.offset, block) for block in fixed], free, (0, 0), start)
    return best


def _lowest_place(block: Block, placed: Iterable[tuple[int, Block]]) -> int:
    """Return the lowest aligned offset at which `block` overlaps nothing that is placed."""
    taken = sorted((at, at + other.size) for at, other in placed if other.meets(block))
    at = 0
    for begin, end in taken:
        if at + block.size <= begin:
            break
        if end > at:
            at = -(-end // block.alignment) * block.alignment
    return at


class Birth(NamedTuple):
    """A block of an unrolled cycle: buffer `buffer` as it lives in `iteration`."""

    buffer: int
    iteration: int
    block: Block


def unroll(
    start: Sequence[int],
    end: Sequence[int],
    size: Sequence[int],
    window: Span,
    iterations: int = 10,
    alignment: Sequence[int] | None = None,
) -> list[Birth]:
    """Return all that lives in the head and in `iterations` of a window that repeats.

    A buffer that starts before the window lives once, as it says; one that starts in the window is
    born again every period. Ticks go on counting: iteration i begins at `window[0] + i * period`.
    """
    begin, period = window[0], window[1] - window[0]
    births = []
    for buffer, block in enumerate(blocks_of(start, end, size, alignment)):
        ((first, last),) = block.spans
        assert first < window[1], f"{buffer} starts behind the window"
        for iteration in range(iterations if first >= begin else 1):
            shift = iteration * period
            moved = block._replace(spans=((first + shift, last + shift),))
            births.append(Birth(buffer, iteration, moved))
    return births
