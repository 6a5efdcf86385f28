"""Jobs of many ranks, made up: the calls of each rank, and the ways in which they can be spoilt.

A job has data, tensor and pipeline groups: rank = (stage * data + replica) * tensor + shard. In
each of its layers every stage takes an activation from the one before, reduces it over its tensor
group, sends it on, exchanges uneven parts with its data group, and gathers and scatters parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class MadeCall:
    """One call in the group called `group`: sizes are elements, `rank` the root or the peer."""

    kind: str
    group: str
    given: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    rank: int | None = None
    dtype: str = "float"
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@dataclass(frozen=True)
class MadeRank:
    """What one rank calls, and the groups that it is in, by name."""

    rank: int
    world_size: int
    groups: dict[str, tuple[int, ...]]
    calls: list[MadeCall] = field(default_factory=list)


def job(data: int, tensor: int, pipeline: int, layers: int = 2) -> list[MadeRank]:
    """Return the ranks of a job."""
    ranks = []
    for rank in range(data * tensor * pipeline):
        shard, replica, stage = rank % tensor, rank // tensor % data, rank // (tensor * data)
        first = rank - shard
        groups = {
            "world": tuple(range(data * tensor * pipeline)),
            "tensor": tuple(range(first, first + tensor)),
            "data": tuple((stage * data + d) * tensor + shard for d in range(data)),
            "pipeline": tuple((p * data + replica) * tensor + shard for p in range(pipeline)),
        }
        made = MadeRank(rank, len(groups["world"]), groups)
        for layer in range(layers):
            made.calls.extend(_layer(layer, replica, stage, groups))
        made.calls.append(MadeCall("barrier", "world"))
        ranks.append(made)
    return ranks


def _layer(
    layer: int, replica: int, stage: int, groups: dict[str, tuple[int, ...]]
) -> Iterator[MadeCall]:
    stages, count = len(groups["pipeline"]), len(groups["data"])
    if stage > 0:
        yield MadeCall("recv", "pipeline", (), (64 + layer,), stage - 1)
    yield MadeCall("all_reduce", "tensor", (64,), (64,), dtype="c10::BFloat16")
    if stage + 1 < stages:
        yield MadeCall("send", "pipeline", (64 + layer,), (), stage + 1)
    given = tuple(1 + (replica + 2 * other + layer) % 3 for other in range(count))
    taken = tuple(1 + (other + 2 * replica + layer) % 3 for other in range(count))
    splits = (given, taken)
    yield MadeCall("all_to_all_single", "data", (sum(given),), (sum(taken),), splits=splits)
    yield MadeCall("all_gather_into_tensor", "data", (8,), (8 * count,))
    yield MadeCall("all_gather", "data", (4,), (4,) * count)
    yield MadeCall("reduce_scatter_tensor", "data", (8 * count,), (8,))
    yield MadeCall("broadcast", "world", (16,), (16,), 0, "long int")


def change(which: str, **changes: Any) -> Callable[[MadeRank], None]:
    """Return what changes the first call of a kind."""

    def spoil(made: MadeRank) -> None:
        index = _index(made, which)
        made.calls[index] = replace(made.calls[index], **changes)

    return spoil


def leave_out(kind: str) -> Callable[[MadeRank], None]:
    """Return what takes the first call of a kind away."""
    return lambda made: made.calls.__delitem__(_index(made, kind))


def swap_with_next(kind: str) -> Callable[[MadeRank], None]:
    """Return what exchanges the first call of a kind with the one after it."""

    def spoil(made: MadeRank) -> None:
        index = _index(made, kind)
        made.calls[index : index + 2] = reversed(made.calls[index : index + 2])

    return spoil


def _index(made: MadeRank, kind: str) -> int:
    return next(k for k, call in enumerate(made.calls) if call.kind == kind)


def send_one_more(made: MadeRank) -> None:
    """Let a rank send one element more in its first all_to_all than its peer expects."""
    index = _index(made, "all_to_all_single")
    (first, *others), taken = made.calls[index].splits
    given = (first + 1, *others)
    made.calls[index] = replace(made.calls[index], given=(sum(given),), splits=(given, taken))


@dataclass(frozen=True)
class Spoil:
    """What goes wrong on one rank of `job(2, 2, 2)`, and what is to be said of it."""

    apply: Callable[[MadeRank], None]
    rank: int
    group: tuple[int, ...]
    text: str


SPOILS = {
    "another kind": Spoil(
        change("all_reduce", kind="broadcast", rank=0), 1, (0, 1), "calls broadcast of 64"
    ),
    "another size": Spoil(
        change("all_reduce", given=(65,), taken=(65,)), 1, (0, 1), "all_reduce of 65 c10::BFloat16"
    ),
    "another type": Spoil(change("all_reduce", dtype="float"), 1, (0, 1), "all_reduce of 64 float"),
    "another root": Spoil(
        change("broadcast", rank=1), 1, tuple(range(8)), "broadcast of 16 long int with root 1"
    ),
    "an output that does not fit its group": Spoil(
        change("all_gather_into_tensor", taken=(15,)),
        1,
        (1, 3),
        "the output has 15 elements and the input 8, expected 2 times as many for 2 ranks",
    ),
    "an input that does not fit its group": Spoil(
        change("reduce_scatter_tensor", given=(17,)),
        1,
        (1, 3),
        "the input has 17 elements and the output 8, expected 2 times as many for 2 ranks",
    ),
    "a list that does not fit its group": Spoil(
        change("all_gather", taken=(4,)),
        1,
        (1, 3),
        "the output has 1 parts, expected one for each of 2 ranks",
    ),
    "parts of an all_to_all": Spoil(
        send_one_more, 1, (1, 3), "Rank 1 sends 2 elements to rank 1 in the all_to_all at node"
    ),
    "a call that lacks": Spoil(
        leave_out("all_gather"), 1, (1, 3), "calls reduce_scatter_tensor of 8 float at node"
    ),
    "the last call that lacks": Spoil(
        leave_out("barrier"),
        1,
        tuple(range(8)),
        "Rank 1 makes 2 calls in group (0..7) and then lacks barrier, which rank 0 calls at node",
    ),
    "another order": Spoil(
        swap_with_next("all_gather_into_tensor"), 1, (1, 3), "calls all_gather of 8 float in 2"
    ),
    "a send of another size": Spoil(
        change("send", given=(63,)), 1, (1, 5), "Rank 1 sends 63 float to rank 5, which receives 64"
    ),
    "a send that lacks": Spoil(leave_out("send"), 1, (1, 5), "rank 5"),
    "a receive that lacks": Spoil(leave_out("recv"), 5, (1, 5), "rank 5"),
}
