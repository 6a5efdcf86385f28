"""Trains a model on many ranks, without a line for et_replay; rank 0 prints what became of it.

    torchrun --standalone --nproc-per-node 2 traces/train_ranks.py JOB

JOB is one of those below, each with collectives of another kind: gloo on CPUs, NCCL on GPUs. The
JSON that rank 0 prints is that of `train.py`: losses (hexadecimal), times between ends of
iterations in ns, and on cuda memory in bytes, of rank 0, and of each rank in `ranks`. With
`--record FOLDER` each rank writes the execution trace of its last two iterations, `rank-R.json`,
by torch's own profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from convnet import residual_net
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule
from train import Step, clock, intervals, memory, random_tokens, resnet_model, step_on_images
from transformer import Decoder

SMALL = {"layers": 2, "width": 32, "heads": 2, "length": 16, "vocabulary": 64, "batch": 2}
LARGE = {"layers": 12, "width": 1024, "heads": 16, "length": 1024, "vocabulary": 32768, "batch": 8}
RECORDED = 2
SETTLED = 0.5
"""Seconds after which gloo's threads are at rest."""


def ddp(sizes: argparse.Namespace, device: torch.device) -> Step:
    """Data parallel: a convolution net whose gradients are all-reduced in buckets."""
    widths = [sizes.width // 4 << k for k in range(3)]
    devices = [device] if device.type == "cuda" else None
    model = DistributedDataParallel(
        residual_net(widths, 1, 10).to(device), devices, bucket_cap_mb=sizes.width / 1024
    )
    return step_on_images(model, 16, 10, device)


def resnet(sizes: argparse.Namespace, device: torch.device) -> Step:
    """Data parallel: the ResNet of train.py, in buckets of the size that PyTorch chooses.

    Images are made on the device, as hosts that several ranks share would take longer.
    """
    devices = [device] if device.type == "cuda" else None
    model = DistributedDataParallel(resnet_model(sizes).to(device), devices)
    return step_on_images(model, sizes.length // 8 + 96, 1000, device, made_on=device.type)


def fsdp(sizes: argparse.Namespace, device: torch.device) -> Step:
    """Sharded: a transformer whose parameters are gathered layer by layer."""
    model = Decoder(sizes).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return language_step(model, sizes, device)


def tensor(sizes: argparse.Namespace, device: torch.device) -> Step:
    """Tensor parallel: a transformer whose feed-forward layers are split between the ranks."""
    torch.manual_seed(sizes.seed)  # ranks share all that is not split, and the batches
    model = Decoder(sizes).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    styles: dict[str, ParallelStyle] = {
        "feed_forward.1": ColwiseParallel(),
        "feed_forward.3": RowwiseParallel(),
    }
    for block in model.blocks:
        parallelize_module(block, mesh, styles)
    return language_step(model, sizes, device, clip=False)


def language_step(
    model: nn.Module, sizes: argparse.Namespace, device: torch.device, clip: bool = True
) -> Step:
    """Return a step that predicts next tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=clip)

    def step(batch: int) -> Tensor:
        tokens = random_tokens(sizes, batch, sizes.length + 1).to(device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def experts(sizes: argparse.Namespace, device: torch.device) -> Step:
    """Expert parallel: an expert a rank, to which an uneven all_to_all takes its tokens."""
    world = dist.get_world_size()
    embedding = nn.Embedding(sizes.vocabulary, sizes.width).to(device)
    router = nn.Linear(sizes.width, world).to(device)
    expert = nn.Sequential(
        nn.Linear(sizes.width, 2 * sizes.width), nn.GELU(), nn.Linear(2 * sizes.width, sizes.width)
    ).to(device)
    shared = [*embedding.parameters(), *router.parameters()]
    optimizer = torch.optim.Adam([*shared, *expert.parameters()], lr=1e-3)

    def exchange(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        return all_to_all_single_autograd(rows, received, sent, dist.group.WORLD)

    def step(batch: int) -> Tensor:
        tokens = random_tokens(sizes, 1, batch * sizes.length)[0].to(device)
        optimizer.zero_grad()
        hidden = embedding(tokens)
        weight, chosen = router(hidden).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        sent = torch.bincount(chosen, minlength=world)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        counts = sent.tolist(), received.tolist()
        worked = exchange(expert(exchange(hidden[order], *counts)), *reversed(counts))
        output = torch.zeros_like(hidden).index_copy(0, order, worked) * weight.unsqueeze(-1)
        loss = (output - hidden.detach().roll(1, 0)).square().mean()
        loss.backward()
        for parameter in shared:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        return loss.detach()

    return step


def pipeline(sizes: argparse.Namespace, device: torch.device) -> Step:
    """Pipeline parallel: a stage a rank, activations sent on, their gradients sent back."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    layers = [nn.Linear(sizes.width, sizes.width), nn.GELU()] * sizes.layers
    stage = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)

    def step(batch: int) -> Tensor:
        optimizer.zero_grad()
        source = torch.randn(batch, sizes.width).to(device)
        if rank > 0:
            dist.recv(source, src=rank - 1)
        output = stage(source.requires_grad_())
        loss = output.square().mean()
        if rank < last:
            dist.send(output.detach(), dst=rank + 1)
            gradient = torch.empty_like(output)
            dist.recv(gradient, src=rank + 1)
            output.backward(gradient)
        else:
            loss.backward()
        if rank > 0:
            dist.send(source.grad, dst=rank - 1)
        optimizer.step()
        return loss.detach()

    return step


JOBS: dict[str, Callable[[argparse.Namespace, torch.device], Step]] = {
    job.__name__: job for job in (ddp, resnet, fsdp, tensor, experts, pipeline)
}


def main() -> None:
    """Join the others, train, and print what became of it."""
    arguments = parsed()
    device = torch.device("cpu")
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if arguments.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        torch.manual_seed(arguments.seed + dist.get_rank())
        mine = train(JOBS[arguments.job](arguments, device), arguments, device) | memory(device)
        of_all = [mine] * dist.get_world_size()
        dist.all_gather_object(of_all, mine)
        if dist.get_rank() == 0:
            print(json.dumps({**mine, "ranks": of_all}))
        # gloo's threads let go of tensors a moment after a call has ended, for which they need a
        # Python that is not ending; FSDP's device mesh keeps them from being joined below.
        time.sleep(SETTLED)
    finally:
        dist.destroy_process_group()


def train(step: Step, arguments: argparse.Namespace, device: torch.device) -> dict[str, object]:
    """Run the iterations; return the losses and the times between their ends."""
    losses, times = [], []
    with recording(arguments) as profiler:
        for _ in range(arguments.iterations):
            losses.append(step(arguments.batch))
            times.append(clock(device))
            if profiler is not None:
                profiler.step()
    return {
        "losses": [loss.item().hex() for loss in losses],
        "iteration_time_ns": list(intervals(times)),
    }


def recording(arguments: argparse.Namespace) -> AbstractContextManager[profile | None]:
    """Record the last iterations, if that is asked for."""
    if arguments.record is None:
        return nullcontext()
    arguments.record.mkdir(parents=True, exist_ok=True)
    path = arguments.record / f"rank-{dist.get_rank()}.json"
    skipped = arguments.iterations - RECORDED
    return profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=skipped - 1, warmup=1, active=RECORDED, repeat=1),
        execution_trace_observer=ExecutionTraceObserver().register_callback(str(path)),
    )


def parsed() -> argparse.Namespace:
    """Read the command line; sizes that are not given are those of --size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--deterministic", action="store_true", help="equal losses in each run")
    parser.add_argument("--record", type=Path, metavar="FOLDER")
    for name in SMALL:
        parser.add_argument(f"--{name}", type=int)
    arguments = parser.parse_args()
    if arguments.record is not None and arguments.iterations <= RECORDED:
        parser.error(f"--record needs more than {RECORDED} --iterations")
    for name, value in (SMALL if arguments.size == "small" else LARGE).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


if __name__ == "__main__":
    main()
