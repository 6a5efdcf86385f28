"""Trains a model, or lets it generate, without a line for et_replay; prints what became of it.

`python traces/train.py JOB` runs one of the jobs below, each with memory of another kind. The JSON
that it prints has the losses (hexadecimal, so that equal means equal to the bit), the times between
ends of iterations in ns, and what torch says of memory in bytes. Batches are made from the seed, so
two runs see the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from convnet import residual_net
from moe import Mixture
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformer import Decoder

Step = Callable[[int], Tensor]

SMALL = {"layers": 2, "width": 64, "heads": 4, "length": 64, "vocabulary": 512, "batch": 4}
LARGE = {"layers": 8, "width": 1024, "heads": 16, "length": 1024, "vocabulary": 32768, "batch": 8}


def dense(sizes: argparse.Namespace, device: torch.device) -> Step:
    """A transformer: layers computed again in the backward pass, gradients of two batches added."""
    model = Decoder(sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def forward(tokens: Tensor) -> Tensor:
        hidden = model.tokens(tokens) + model.positions(torch.arange(len(tokens[0]), device=device))
        for block in model.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False)
        logits: Tensor = model.head(model.norm(hidden))
        return logits.flatten(0, 1)

    def step(batch: int) -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for _ in range(2):
            tokens = random_tokens(sizes, batch, sizes.length + 1).to(device)
            with torch.autocast(device.type, torch.bfloat16):
                loss = functional.cross_entropy(forward(tokens[:, :-1]), tokens[:, 1:].flatten())
            (loss / 2).backward()
            total += loss.detach() / 2
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return total

    return step


def resnet(sizes: argparse.Namespace, device: torch.device) -> Step:
    """torchvision's ResNet-50 where that is installed, else a residual net of eight blocks."""
    return step_on_images(resnet_model(sizes).to(device), sizes.length // 8 + 96, 1000, device)


def resnet_model(sizes: argparse.Namespace) -> nn.Module:
    """Make the model of `resnet`, on the host."""
    try:
        from torchvision.models import resnet50
    except ImportError:
        return residual_net([sizes.width // 8 << k for k in range(4)], 2, 1000)
    model: nn.Module = resnet50()
    return model


def step_on_images(
    model: nn.Module, side: int, classes: int, device: torch.device, made_on: str = "cpu"
) -> Step:
    """Train on random squares of `side` pixels, four of them for each sample of a batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(batch: int) -> Tensor:
        images = torch.randn(4 * batch, 3, side, side, device=made_on)
        labels = torch.randint(classes, (4 * batch,))
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def experts(sizes: argparse.Namespace, device: torch.device) -> Step:
    """A mixture of eight experts: how many tokens each gets changes from step to step."""
    sizes = argparse.Namespace(**vars(sizes), inner=2 * sizes.width, experts=8)
    model = Mixture(sizes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(batch: int) -> Tensor:
        tokens = random_tokens(sizes, 1, batch * sizes.length + 1)[0].to(device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(tokens[:-1]), tokens[1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def lengths(sizes: argparse.Namespace, device: torch.device) -> Step:
    """A transformer on batches of which each has another length."""
    model = Decoder(sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step(batch: int) -> Tensor:
        length = random.randint(sizes.length // 4, sizes.length)
        tokens = random_tokens(sizes, batch, length + 1).to(device)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = functional.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            )
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def generation(sizes: argparse.Namespace, device: torch.device) -> Step:
    """A transformer that generates: for every token, keys and values grow by one place."""
    model = Decoder(sizes).to(device).eval()

    @torch.inference_mode()
    def step(batch: int) -> Tensor:
        with torch.profiler.record_function("request"):
            tokens = random_tokens(sizes, batch, 16).to(device)
            cache: list[tuple[Tensor, Tensor]] = []
            score = torch.zeros((), device=device)
            for place in range(16, sizes.length // 2):
                logits = decode(model, tokens if place == 16 else tokens[:, -1:], cache)
                score += logits.amax(-1).mean()
                tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
            return score

    return step


def decode(model: Decoder, tokens: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the logits of the next token; `cache` has keys and values of each layer so far."""
    first = cache[0][0].shape[2] if cache else 0
    places = torch.arange(first, first + tokens.shape[1], device=tokens.device)
    hidden = model.tokens(tokens) + model.positions(places)
    for layer, block in enumerate(model.blocks):
        batch, length, width = hidden.shape
        projected = block.projection(block.attention_norm(hidden))
        heads = projected.view(batch, length, 3, block.heads, width // block.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        if first:
            key = torch.cat([cache[layer][0], key], 2)
            value = torch.cat([cache[layer][1], value], 2)
            cache[layer] = key, value
        else:
            cache.append((key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=not first)
        hidden = hidden + block.output(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = hidden + block.feed_forward(hidden)
    logits: Tensor = model.head(model.norm(hidden[:, -1]))
    return logits


def pretrained(sizes: argparse.Namespace, device: torch.device) -> Step:
    """GPT-2 as the library transformers writes it, with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=sizes.vocabulary, n_positions=sizes.length, n_embd=sizes.width,
        n_layer=sizes.layers, n_head=sizes.heads,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step(batch: int) -> Tensor:
        tokens = random_tokens(sizes, batch, sizes.length).to(device)
        optimizer.zero_grad()
        loss: Tensor = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


JOBS = {job.__name__: job for job in (dense, resnet, experts, lengths, generation, pretrained)}


def random_tokens(sizes: argparse.Namespace, batch: int, length: int) -> Tensor:
    """Make tokens on the host, of which the smaller ones are more frequent."""
    return (torch.rand(batch, length) ** 2 * sizes.vocabulary).long()


def main() -> None:
    """Read the sizes, train, and print what became of it."""
    arguments = parsed()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass adds up in any order
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    device = torch.device(arguments.device)
    step = JOBS[arguments.job](arguments, device)
    losses, times = [], []
    for iteration in range(arguments.iterations):
        other = iteration == arguments.other_batch_at
        losses.append(step(arguments.batch // 2 if other else arguments.batch))
        times.append(clock(device))
    outcome = {
        "losses": [loss.item().hex() for loss in losses],
        "iteration_time_ns": list(intervals(times)),
    }
    print(json.dumps(outcome | memory(device)))


def parsed() -> argparse.Namespace:
    """Read the command line; sizes that are not given are those of --size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--other-batch-at", type=int, metavar="N", help="iteration of half a batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("small", "large"), default="small")
    for name in SMALL:
        parser.add_argument(f"--{name}", type=int)
    arguments = parser.parse_args()
    for name, value in (SMALL if arguments.size == "small" else LARGE).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def clock(device: torch.device) -> torch.cuda.Event | int:
    """Take the time on the device's stream, without waiting for it; of a CPU in ns."""
    if device.type != "cuda":
        return time.perf_counter_ns()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def intervals(times: list[torch.cuda.Event | int]) -> Iterator[int]:
    """Yield the ns between each time and the next."""
    for before, after in pairwise(times):
        if isinstance(before, int) or isinstance(after, int):
            yield int(after) - int(before)
        else:
            after.synchronize()
            yield round(before.elapsed_time(after) * 1e6)


def memory(device: torch.device) -> dict[str, int]:
    """Return what torch says of the device's memory."""
    if device.type != "cuda":
        return {}
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
    }


if __name__ == "__main__":
    main()
