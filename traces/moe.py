"""Captures a step of a mixture of experts: tokens go to their two best experts, by data; Adam."""

from __future__ import annotations

import argparse

import torch
from capture import Iteration, argument_parser, capture
from torch import Tensor, nn
from torch.nn import functional


class Experts(nn.Module):
    """Feed-forward experts, each run on the tokens whose two highest scores it is among."""

    def __init__(self, width: int, inner: int, count: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.SiLU(), nn.Linear(inner, width))
            for _ in range(count)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        tokens: Tensor = self.norm(hidden)
        scores, chosen = self.router(tokens).softmax(-1).topk(2, dim=-1)
        weights = scores / scores.sum(-1, keepdim=True)
        mixed = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, ranks = torch.nonzero(chosen == index, as_tuple=True)
            mixed.index_add_(0, rows, expert(tokens[rows]) * weights[rows, ranks].unsqueeze(-1))
        return hidden + mixed


class Mixture(nn.Module):
    """An embedding, layers of experts, and a projection to the vocabulary."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(arguments.vocabulary, arguments.width)
        self.layers = nn.Sequential(
            *(
                Experts(arguments.width, arguments.inner, arguments.experts)
                for _ in range(arguments.layers)
            )
        )
        self.head = nn.Linear(arguments.width, arguments.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.tokens(tokens)))
        return logits


def build(arguments: argparse.Namespace, device: torch.device) -> Iteration:
    """Return a training step that asks each token for the next; routing moves as the weights do."""
    model = Mixture(arguments).to(device)
    if arguments.compile:
        model.compile()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    batch = torch.randint(arguments.vocabulary, (arguments.tokens + 1,), device=device)

    def iteration() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(batch[:-1]), batch[1:])
        torch.autograd.backward(loss)
        optimizer.step()

    return iteration


def main() -> None:
    """Read the sizes and capture."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--inner", type=int, default=1024, help="width inside an expert")
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=4096)
    arguments = parser.parse_args()
    capture(lambda device: build(arguments, device), arguments)


if __name__ == "__main__":
    main()
