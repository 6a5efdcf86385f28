"""A kind of collective and its settings in, the call on a process group that makes it out.

All tensors are flat, contiguous and of one type, and splits are in their elements: gloo demands
more of shapes than NCCL does. Calls return a Work, or None where they have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

Tensors = list[torch.Tensor]
Launch = Callable[[Tensors, Tensors], Any]
"""Makes one call with these tensors in and those out; in place, both are the same."""

IN_PLACE = frozenset({"all_reduce", "all_reduce_coalesced", "broadcast", "reduce"})
REDUCING = IN_PLACE - {"broadcast"} | {
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
}
_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a call needs beside tensors; ranks are those of `group`.

    `sizes` are the elements that each rank gives to an all_gather or takes of a reduce_scatter,
    where these are not the same for all. `device` is what a barrier is on.
    """

    group: Any
    device: torch.device
    timeout: timedelta
    root: int = 0
    peer: int | None = None
    tag: int = 0
    reduction: str | None = None
    in_splits: Sequence[int] = ()
    out_splits: Sequence[int] = ()
    sizes: Sequence[int] = ()
    asynchronous: bool = False


def launcher(kind: str, settings: Settings) -> Launch:
    """Return what makes calls of one of `KINDS`."""
    by_turns = _BY_TURNS.get(kind) if settings.sizes else None
    return (by_turns or _LAUNCHERS[kind])(settings)


class Several:
    """The Works of several calls that stand for one."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


def reduction_of(name: str | None) -> Any:
    """Return torch.distributed's reduction; the sum where none, or an unknown one, is named."""
    return _REDUCTIONS.get((name or "sum").lower(), dist.ReduceOp.SUM)


def _options(kind: Any, settings: Settings, **values: Any) -> Any:
    """Fill in options; whether a call is asynchronous is one of them from PyTorch 2.8 on."""
    options = kind()
    options.timeout = settings.timeout
    for name, value in {"asyncOp": settings.asynchronous, **values}.items():
        if hasattr(options, name):
            setattr(options, name, value)
    return options


def _all_reduce(settings: Settings) -> Launch:
    operator = reduction_of(settings.reduction)
    options = _options(c10d.AllreduceOptions, settings, reduceOp=operator)
    return lambda given, taken: settings.group.allreduce(taken, options)


def _all_reduce_coalesced(settings: Settings) -> Launch:
    operator = reduction_of(settings.reduction)
    options = _options(c10d.AllreduceCoalescedOptions, settings, reduceOp=operator)
    return lambda given, taken: settings.group.allreduce_coalesced(taken, options)


def _broadcast(settings: Settings) -> Launch:
    options = _options(c10d.BroadcastOptions, settings, rootRank=settings.root, rootTensor=0)
    return lambda given, taken: settings.group.broadcast(taken, options)


def _reduce(settings: Settings) -> Launch:
    operator = reduction_of(settings.reduction)
    options = _options(
        c10d.ReduceOptions, settings, reduceOp=operator, rootRank=settings.root, rootTensor=0
    )
    return lambda given, taken: settings.group.reduce(taken, options)


def _all_gather(settings: Settings) -> Launch:
    options = _options(c10d.AllgatherOptions, settings)
    return lambda given, taken: settings.group.allgather([taken], given, options)


def _all_gather_by_turns(settings: Settings) -> Launch:
    """Broadcast from every rank, as NCCL's process group does it too."""
    group, mine = settings.group, settings.group.rank()

    def launch(given: Tensors, taken: Tensors) -> Several:
        taken[mine].copy_(given[0])
        works = []
        for root, tensor in enumerate(taken):
            options = _options(c10d.BroadcastOptions, settings, rootRank=root, rootTensor=0)
            works.append(group.broadcast([tensor], options))
        return Several(works)

    return launch


def _all_gather_into_tensor(settings: Settings) -> Launch:
    options = _options(c10d.AllgatherOptions, settings)
    return lambda given, taken: settings.group._allgather_base(taken[0], given[0], options)


def _all_gather_coalesced(settings: Settings) -> Launch:
    options = _options(c10d.AllgatherOptions, settings)

    def launch(given: Tensors, taken: Tensors) -> Any:
        count = len(given)
        of_ranks = [taken[at : at + count] for at in range(0, len(taken), count)]
        return settings.group.allgather_coalesced(of_ranks, given, options)

    return launch


def _all_gather_into_tensor_coalesced(settings: Settings) -> Launch:
    options = _options(c10d.AllgatherOptions, settings)
    group = settings.group
    return lambda given, taken: group.allgather_into_tensor_coalesced(taken, given, options)


def _reduce_scatter(settings: Settings) -> Launch:
    operator = reduction_of(settings.reduction)
    options = _options(c10d.ReduceScatterOptions, settings, reduceOp=operator)
    return lambda given, taken: settings.group.reduce_scatter(taken, [given], options)


def _reduce_scatter_by_turns(settings: Settings) -> Launch:
    """Reduce to every rank, as NCCL's process group does it too."""
    group, mine = settings.group, settings.group.rank()
    operator = reduction_of(settings.reduction)

    def launch(given: Tensors, taken: Tensors) -> Several:
        works = []
        copies = [tensor.clone() for tensor in given]
        copies[mine] = taken[0].copy_(given[mine])
        for root, tensor in enumerate(copies):
            options = _options(
                c10d.ReduceOptions, settings, reduceOp=operator, rootRank=root, rootTensor=0
            )
            works.append(group.reduce([tensor], options))
        return Several(works)

    return launch


def _reduce_scatter_tensor(settings: Settings) -> Launch:
    operator = reduction_of(settings.reduction)
    options = _options(c10d.ReduceScatterOptions, settings, reduceOp=operator)
    return lambda given, taken: settings.group._reduce_scatter_base(taken[0], given[0], options)


def _reduce_scatter_tensor_coalesced(settings: Settings) -> Launch:
    operator = reduction_of(settings.reduction)
    options = _options(c10d.ReduceScatterOptions, settings, reduceOp=operator)
    group = settings.group
    return lambda given, taken: group.reduce_scatter_tensor_coalesced(taken, given, options)


def _all_to_all(settings: Settings) -> Launch:
    options = _options(c10d.AllToAllOptions, settings)
    return lambda given, taken: settings.group.alltoall(taken, given, options)


def _all_to_all_single(settings: Settings) -> Launch:
    options = _options(c10d.AllToAllOptions, settings)
    sizes = list(settings.out_splits), list(settings.in_splits)
    group = settings.group
    return lambda given, taken: group.alltoall_base(taken[0], given[0], *sizes, options)


def _gather(settings: Settings) -> Launch:
    options = _options(c10d.GatherOptions, settings, rootRank=settings.root)
    return lambda given, taken: settings.group.gather([taken] if taken else [], given, options)


def _scatter(settings: Settings) -> Launch:
    options = _options(c10d.ScatterOptions, settings, rootRank=settings.root)
    return lambda given, taken: settings.group.scatter(taken, [given] if given else [], options)


def _send(settings: Settings) -> Launch:
    peer, tag = settings.peer, settings.tag
    return lambda given, taken: settings.group.send(given, peer, tag)


def _receive(settings: Settings) -> Launch:
    peer, tag, group = settings.peer, settings.tag, settings.group
    if peer is None:
        return lambda given, taken: group.recv_anysource(taken, tag)
    return lambda given, taken: group.recv(taken, peer, tag)


def _barrier(settings: Settings) -> Launch:
    options = _options(c10d.BarrierOptions, settings, device=settings.device)
    if settings.device.index is not None:
        options.device_ids = [settings.device.index]
    return lambda given, taken: settings.group.barrier(options)


def _monitored_barrier(settings: Settings) -> Launch:
    """Only gloo has it: where NCCL serves as well, the group has gloo for the host's tensors."""
    host = settings.group._get_backend(torch.device("cpu"))
    return lambda given, taken: host.monitored_barrier(settings.timeout, False)


_LAUNCHERS: dict[str, Callable[[Settings], Launch]] = {
    "all_reduce": _all_reduce,
    "all_reduce_coalesced": _all_reduce_coalesced,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "all_gather_coalesced": _all_gather_coalesced,
    "all_gather_into_tensor_coalesced": _all_gather_into_tensor_coalesced,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "reduce_scatter_tensor_coalesced": _reduce_scatter_tensor_coalesced,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "gather": _gather,
    "scatter": _scatter,
    "send": _send,
    "recv": _receive,
    "barrier": _barrier,
    "monitored_barrier": _monitored_barrier,
}
_BY_TURNS: dict[str, Callable[[Settings], Launch]] = {
    "all_gather": _all_gather_by_turns,
    "reduce_scatter": _reduce_scatter_by_turns,
}

KINDS = frozenset(_LAUNCHERS)
"""The kinds of collectives that can be made."""
