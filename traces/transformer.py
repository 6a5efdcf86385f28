"""Captures a step of a decoder-only transformer: causal attention, clipped gradients, AdamW."""

from __future__ import annotations

import argparse

import torch
from capture import Iteration, argument_parser, capture
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward layer, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        projected: Tensor = self.projection(self.attention_norm(hidden))
        heads = projected.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: Tensor = hidden + self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = attended + self.feed_forward(attended)
        return result


class Decoder(nn.Module):
    """Token and position embeddings, blocks, and a projection to the vocabulary."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(arguments.vocabulary, arguments.width)
        self.positions = nn.Embedding(arguments.length, arguments.width)
        self.blocks = nn.Sequential(
            *(Block(arguments.width, arguments.heads) for _ in range(arguments.layers))
        )
        self.norm = nn.LayerNorm(arguments.width)
        self.head = nn.Linear(arguments.width, arguments.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(positions)
        logits: Tensor = self.head(self.norm(self.blocks(hidden)))
        return logits


def build(arguments: argparse.Namespace, device: torch.device) -> Iteration:
    """Return a training step; its batch lies on the host and is copied to the device each time."""
    model = Decoder(arguments).to(device)
    if arguments.compile:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    batch = torch.randint(arguments.vocabulary, (arguments.batch, arguments.length + 1))

    def iteration() -> None:
        optimizer.zero_grad(set_to_none=True)
        tokens = batch.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=arguments.autocast):
            # No name for the logits: one would keep them through the backward pass, which no trace
            # can tell.
            loss = functional.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            )
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return iteration


def main() -> None:
    """Read the sizes and capture."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--autocast", action="store_true", help="run the forward pass in bfloat16")
    arguments = parser.parse_args()
    capture(lambda device: build(arguments, device), arguments)


if __name__ == "__main__":
    main()
