"""Calls every collective of torch.distributed once, with known values, and records the calls.

    torchrun --standalone --nproc-per-node 2 traces/collectives.py --output FOLDER

Each rank writes `rank-R.json.gz`, its execution trace: one ProfilerStep, in which each call lies
below a mark `case NAME`. Results are held against what plain arithmetic gives; a wrong one is an
error. What the backend refuses is passed over, and named. Rank r's k-th value is 10 * r + k + 1.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.distributed import ReduceOp
from torch.profiler import ExecutionTraceObserver, record_function

Results = list[tuple[Tensor, Tensor]]
"""Pairs of what a call gave and what is right."""
Case = Callable[[], Results]

COUNT = 4
"""Elements of one rank's share."""
CASES: dict[str, Case] = {}


def case(run: Case) -> Case:
    """Add a case by the name of its function."""
    CASES[run.__name__] = run
    return run


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def device() -> torch.device:
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def values(of: int, count: int = COUNT, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the values of a rank."""
    return (torch.arange(count) + 10 * of + 1).to(device(), dtype)


def of_all(count: int = COUNT, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the values of all ranks, a row each."""
    return torch.stack([values(r, count, dtype) for r in range(size())])


def empty(count: int = COUNT) -> Tensor:
    return torch.full((count,), -1.0, device=device())


def root() -> int:
    """The last rank: a root that is not the default."""
    return size() - 1


@case
def broadcast() -> Results:
    tensor = values(rank())
    dist.broadcast(tensor, src=root())
    return [(tensor, values(root()))]


def reduction(operator: ReduceOp.RedOpType, combined: Callable[[Tensor], Tensor]) -> Case:
    """Make the case of an all_reduce by an operator, in the type that it is for."""
    dtype = torch.int32 if operator in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) else None

    def run() -> Results:
        tensor = values(rank(), dtype=dtype or torch.float32)
        dist.all_reduce(tensor, op=operator)
        return [(tensor, combined(of_all(dtype=dtype or torch.float32)))]

    return run


def bitwise(combine: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return what combines rows one after another."""

    def combined(rows: Tensor) -> Tensor:
        result = rows[0]
        for row in rows[1:]:
            result = combine(result, row)
        return result

    return combined


REDUCTIONS: dict[str, tuple[ReduceOp.RedOpType, Callable[[Tensor], Tensor]]] = {
    "sum": (ReduceOp.SUM, lambda rows: rows.sum(0)),
    "avg": (ReduceOp.AVG, lambda rows: rows.mean(0)),
    "product": (ReduceOp.PRODUCT, lambda rows: rows.prod(0)),
    "min": (ReduceOp.MIN, lambda rows: rows.amin(0)),
    "max": (ReduceOp.MAX, lambda rows: rows.amax(0)),
    "band": (ReduceOp.BAND, bitwise(torch.bitwise_and)),
    "bor": (ReduceOp.BOR, bitwise(torch.bitwise_or)),
    "bxor": (ReduceOp.BXOR, bitwise(torch.bitwise_xor)),
}
CASES |= {f"all_reduce_{name}": reduction(*how) for name, how in REDUCTIONS.items()}


@case
def reduce() -> Results:
    tensor = values(rank())
    dist.reduce(tensor, dst=root())
    return [(tensor, of_all().sum(0))] if rank() == root() else []


@case
def all_gather() -> Results:
    tensors = [empty() for _ in range(size())]
    dist.all_gather(tensors, values(rank()))
    return [(torch.stack(tensors), of_all())]


@case
def all_gather_into_tensor() -> Results:
    output = empty(COUNT * size())
    dist.all_gather_into_tensor(output, values(rank()))
    return [(output, of_all().flatten())]


@case
def reduce_scatter() -> Results:
    output = empty()
    dist.reduce_scatter(output, list(values(rank(), COUNT * size()).chunk(size())))
    return [(output, of_all(COUNT * size()).sum(0).chunk(size())[rank()])]


@case
def reduce_scatter_tensor() -> Results:
    output = empty()
    dist.reduce_scatter_tensor(output, values(rank(), COUNT * size()))
    return [(output, of_all(COUNT * size()).sum(0).chunk(size())[rank()])]


@case
def all_to_all() -> Results:
    received = [empty() for _ in range(size())]
    dist.all_to_all(received, list(values(rank(), COUNT * size()).chunk(size())))
    sent = of_all(COUNT * size()).view(size(), size(), COUNT)
    return [(torch.stack(received), sent[:, rank()])]


@case
def all_to_all_uneven() -> Results:
    """Rank i sends i + j + 1 elements to rank j."""
    sent = values(rank(), sum(splits(rank()))).split(splits(rank()))
    received = [empty(count) for count in splits(rank())]
    dist.all_to_all(received, list(sent))
    return [(torch.cat(received), exchanged())]


@case
def all_to_all_single() -> Results:
    output = empty(COUNT * size())
    dist.all_to_all_single(output, values(rank(), COUNT * size()))
    sent = of_all(COUNT * size()).view(size(), size(), COUNT)
    return [(output, sent[:, rank()].flatten())]


@case
def all_to_all_single_uneven() -> Results:
    """Rank i sends i + j + 1 elements to rank j."""
    output = empty(sum(splits(rank())))
    source = values(rank(), sum(splits(rank())))
    dist.all_to_all_single(output, source, splits(rank()), splits(rank()))
    return [(output, exchanged())]


def splits(of: int) -> list[int]:
    """Say how many elements a rank sends to each, and receives from each."""
    return [of + other + 1 for other in range(size())]


def exchanged() -> Tensor:
    """Return what this rank receives in an uneven exchange."""
    sent = [values(r, sum(splits(r))).split(splits(r)) for r in range(size())]
    return torch.cat([parts[rank()] for parts in sent])


@case
def gather() -> Results:
    tensors = [empty() for _ in range(size())] if rank() == root() else None
    dist.gather(values(rank()), tensors, dst=root())
    return [(torch.stack(tensors), of_all())] if tensors else []


@case
def scatter() -> Results:
    output = empty()
    parts = list(values(root(), COUNT * size()).chunk(size())) if rank() == root() else None
    dist.scatter(output, parts, src=root())
    return [(output, values(root(), COUNT * size()).chunk(size())[rank()])]


def needs_another_rank() -> None:
    """Raise before torch waits for a rank that there is not."""
    if size() < 2:
        raise NotImplementedError("messages are for two ranks")


@case
def send_and_recv() -> Results:
    """From rank 0 to rank 1; the others have no part in it."""
    needs_another_rank()
    if rank() == 0:
        dist.send(values(0), dst=1)
    if rank() != 1:
        return []
    tensor = empty()
    dist.recv(tensor, src=0)
    return [(tensor, values(0))]


@case
def isend_and_irecv() -> Results:
    """Two of different sizes at a time, from rank 1 to rank 0."""
    needs_another_rank()
    if rank() == 1:
        sent = [dist.isend(values(1, COUNT + k), dst=0, tag=k) for k in range(2)]
        for work in sent:
            work.wait()
    if rank() != 0:
        return []
    tensors = [empty(COUNT + k) for k in range(2)]
    for work in [dist.irecv(tensor, src=1, tag=k) for k, tensor in enumerate(tensors)]:
        work.wait()
    return [(tensor, values(1, COUNT + k)) for k, tensor in enumerate(tensors)]


@case
def recv_from_any() -> Results:
    """By a tag of its own, as the last rank of the ring below may be here already."""
    needs_another_rank()
    if dist.get_backend() == "nccl":
        raise NotImplementedError("NCCL receives from a rank that it is told")
    if rank() == 1:
        dist.send(values(1), dst=0, tag=7)
    if rank() != 0:
        return []
    tensor = empty()
    dist.recv(tensor, tag=7)
    return [(tensor, values(1))]


@case
def batch_isend_irecv() -> Results:
    """A ring: each rank sends to the next one."""
    needs_another_rank()
    tensor, before, after = empty(), (rank() - 1) % size(), (rank() + 1) % size()
    calls = [
        dist.P2POp(dist.isend, values(rank()), after),
        dist.P2POp(dist.irecv, tensor, before),
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return [(tensor, values(before))]


@case
def barrier() -> Results:
    dist.barrier()
    return []


@case
def monitored_barrier() -> Results:
    dist.monitored_barrier()
    return []


@case
def all_reduce_coalesced() -> Results:
    tensors = [values(rank(), count) for count in (3, 5)]
    dist.all_reduce_coalesced(tensors)
    return [(tensor, of_all(count).sum(0)) for tensor, count in zip(tensors, (3, 5), strict=True)]


@case
def all_gather_coalesced() -> Results:
    outputs = [[empty(count) for count in (3, 5)] for _ in range(size())]
    dist.all_gather_coalesced(outputs, [values(rank(), count) for count in (3, 5)])
    return [
        (outputs[r][k], values(r, count)) for r in range(size()) for k, count in enumerate((3, 5))
    ]


def only_with_nccl(what: str) -> None:
    """Raise before torch does, which would leave the group in a state of its own."""
    if dist.get_backend() != "nccl":
        raise NotImplementedError(f"{what} are for NCCL")


@case
def coalesced_all_reduce() -> Results:
    only_with_nccl("coalesced calls")
    tensors = [values(rank(), count) for count in (3, 5)]
    with dist._coalescing_manager(device=device()):
        for tensor in tensors:
            dist.all_reduce(tensor)
    return [(tensor, of_all(count).sum(0)) for tensor, count in zip(tensors, (3, 5), strict=True)]


@case
def coalesced_all_gather_into_tensor() -> Results:
    only_with_nccl("coalesced calls")
    outputs = [empty(count * size()) for count in (3, 5)]
    with dist._coalescing_manager(device=device(), async_ops=True) as manager:
        for output, count in zip(outputs, (3, 5), strict=True):
            dist.all_gather_into_tensor(output, values(rank(), count))
    manager.wait()
    return [
        (output, of_all(count).flatten()) for output, count in zip(outputs, (3, 5), strict=True)
    ]


@case
def coalesced_reduce_scatter_tensor() -> Results:
    only_with_nccl("coalesced calls")
    outputs = [empty(count) for count in (3, 5)]
    with dist._coalescing_manager(device=device()):
        for output, count in zip(outputs, (3, 5), strict=True):
            dist.reduce_scatter_tensor(output, values(rank(), count * size()))
    return [
        (output, of_all(count * size()).sum(0).chunk(size())[rank()])
        for output, count in zip(outputs, (3, 5), strict=True)
    ]


@case
def all_reduce_asynchronous() -> Results:
    """Two at a time, with other work while they run, waited for the other way round."""
    first, second = values(rank()), values(rank(), 6)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in (first, second)]
    meanwhile = values(rank(), 8) * 2
    for work in reversed(works):
        work.wait()
    return [
        (first, of_all().sum(0)),
        (second, of_all(6).sum(0)),
        (meanwhile, values(rank(), 8) + values(rank(), 8)),
    ]


@case
def all_gather_into_tensor_asynchronous() -> Results:
    output = empty(COUNT * size())
    work = dist.all_gather_into_tensor(output, values(rank()), async_op=True)
    work.wait()
    return [(output, of_all().flatten())]


@case
def all_reduce_in_pairs() -> Results:
    """In groups of two neighbours each."""
    first = rank() // 2 * 2
    tensor = values(rank())
    dist.all_reduce(tensor, group=PAIRS[first])
    pair = of_all()[first : first + 2]
    return [(tensor, pair.sum(0))]


@case
def broadcast_in_reversed_group() -> Results:
    """In a group that holds all ranks a second time."""
    tensor = values(rank())
    dist.broadcast(tensor, src=0, group=PAIRS[-1])
    return [(tensor, values(0))]


@case
def all_gather_object() -> Results:
    objects: list[object] = [None] * size()
    dist.all_gather_object(objects, {"rank": rank()})
    found = [entry["rank"] for entry in objects if isinstance(entry, dict)]
    return [(torch.tensor(found), torch.arange(size()))]


@case
def functional_all_reduce() -> Results:
    result = functional.all_reduce(values(rank()), "sum", dist.group.WORLD)
    return [(functional.wait_tensor(result), of_all().sum(0))]


@case
def functional_all_reduce_max() -> Results:
    result = functional.all_reduce(values(rank()), "max", PAIRS[rank() // 2 * 2])
    first = rank() // 2 * 2
    return [(functional.wait_tensor(result), of_all()[first : first + 2].amax(0))]


@case
def functional_all_reduce_coalesced() -> Results:
    results = functional.all_reduce_coalesced(
        [values(rank(), count) for count in (3, 5)], "sum", dist.group.WORLD
    )
    return [
        (functional.wait_tensor(result), of_all(count).sum(0))
        for result, count in zip(results, (3, 5), strict=True)
    ]


@case
def functional_all_gather() -> Results:
    result = functional.all_gather_tensor(values(rank()), 0, dist.group.WORLD)
    return [(functional.wait_tensor(result), of_all().flatten())]


@case
def functional_all_gather_coalesced() -> Results:
    results = functional.all_gather_into_tensor_coalesced(
        [values(rank(), count) for count in (3, 5)], dist.group.WORLD
    )
    return [
        (functional.wait_tensor(result), of_all(count).flatten())
        for result, count in zip(results, (3, 5), strict=True)
    ]


@case
def functional_reduce_scatter() -> Results:
    result = functional.reduce_scatter_tensor(
        values(rank(), COUNT * size()), "sum", 0, dist.group.WORLD
    )
    right = of_all(COUNT * size()).sum(0).chunk(size())[rank()]
    return [(functional.wait_tensor(result), right)]


@case
def functional_reduce_scatter_coalesced() -> Results:
    results = functional.reduce_scatter_tensor_coalesced(
        [values(rank(), count * size()) for count in (3, 5)], "sum", [0, 0], dist.group.WORLD
    )
    return [
        (functional.wait_tensor(result), of_all(count * size()).sum(0).chunk(size())[rank()])
        for result, count in zip(results, (3, 5), strict=True)
    ]


@case
def functional_all_to_all() -> Results:
    source = values(rank(), sum(splits(rank())))
    result = functional.all_to_all_single(source, splits(rank()), splits(rank()), dist.group.WORLD)
    return [(functional.wait_tensor(result), exchanged())]


@case
def functional_broadcast() -> Results:
    result = functional.broadcast(values(rank()), root(), dist.group.WORLD)
    return [(functional.wait_tensor(result), values(root()))]


@case
def functional_all_gather_with_gradient() -> Results:
    source = values(rank()).requires_grad_()
    result = functional.all_gather_tensor_autograd(source, 0, dist.group.WORLD)
    result.sum().backward()
    assert source.grad is not None
    return [(result.detach(), of_all().flatten()), (source.grad, 0 * source.detach() + size())]


@case
def functional_reduce_scatter_with_gradient() -> Results:
    source = values(rank(), COUNT * size()).requires_grad_()
    result = functional.reduce_scatter_tensor_autograd(source, "sum", 0, dist.group.WORLD)
    result.sum().backward()
    assert source.grad is not None
    right = of_all(COUNT * size()).sum(0).chunk(size())[rank()]
    return [(result.detach(), right), (source.grad, 0 * source.detach() + 1)]


@case
def functional_all_to_all_with_gradient() -> Results:
    source = values(rank(), sum(splits(rank()))).requires_grad_()
    result = functional.all_to_all_single_autograd(
        source, splits(rank()), splits(rank()), dist.group.WORLD
    )
    result.sum().backward()
    assert source.grad is not None
    return [(result.detach(), exchanged()), (source.grad, 0 * source.detach() + 1)]


PAIRS: dict[int, dist.ProcessGroup | None] = {}
"""Groups by their first rank, pairs of neighbours; -1 is all ranks a second time."""


def make_groups() -> None:
    """Make the groups, on all ranks in the same order."""
    for first in range(0, size(), 2):
        members = list(range(first, min(first + 2, size())))
        group = dist.new_group(members, group_desc=f"pair {first}")
        if rank() in members:
            PAIRS[first] = group
    PAIRS[-1] = dist.new_group(list(range(size())), group_desc="all again")


def record(names: list[str]) -> tuple[bytes, list[str]]:
    """Run the cases in one ProfilerStep; return the trace, and what was refused and why."""
    refused = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        observer = ExecutionTraceObserver().register_callback(str(path))
        observer.start()
        with record_function("ProfilerStep#1"):
            for name in names:
                with record_function(f"case {name}"):
                    try:
                        check(name, CASES[name]())
                    except (RuntimeError, NotImplementedError, ValueError) as error:
                        refused.append(f"{name}: {str(error).splitlines()[0]}")
        observer.stop()
        observer.unregister_callback()
        return path.read_bytes(), refused


def check(name: str, results: Results) -> None:
    """Raise AssertionError where a result is wrong."""
    for got, right in results:
        if not torch.equal(got.cpu(), right.cpu()):
            raise AssertionError(f"{name} gave {got.tolist()}, right is {right.tolist()}.")


def main() -> None:
    """Run under torchrun, and write what each rank recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    arguments = parser.parse_args()
    if arguments.backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    warnings.simplefilter("ignore", FutureWarning)  # of functional collectives' older names
    dist.init_process_group(arguments.backend)
    try:
        make_groups()
        trace, refused = record(arguments.only)
        arguments.output.mkdir(parents=True, exist_ok=True)
        path = arguments.output / f"rank-{rank()}.json.gz"
        path.write_bytes(gzip.compress(trace, mtime=0))
        if rank() == 0:
            for line in refused:
                print(f"refused by {arguments.backend}: {line}", file=sys.stderr)
            print(f"{len(arguments.only) - len(refused)} cases recorded", file=sys.stderr)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
