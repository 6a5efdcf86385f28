"""Captures a step of a residual convolution net: batch norm, ReLU, SGD with momentum."""

from __future__ import annotations

import argparse

import torch
from capture import Iteration, argument_parser, capture
from torch import Tensor, nn
from torch.nn import functional


def normalized_convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    """A convolution that keeps the image's size but for its stride, and batch norm."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two 3x3 convolutions beside the identity, or a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = normalized_convolution(inputs, outputs, 3, stride)
        self.second = normalized_convolution(outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity() if same else normalized_convolution(inputs, outputs, 1, stride)
        )

    def forward(self, image: Tensor) -> Tensor:
        inner = functional.relu(self.first(image), inplace=True)
        return functional.relu(self.second(inner) + self.shortcut(image), inplace=True)


def residual_net(widths: list[int], blocks: int, classes: int) -> nn.Sequential:
    """A stem, stages that halve the image after the first, and a linear classifier."""
    layers: list[nn.Module] = [normalized_convolution(3, widths[0], 3, 1), nn.ReLU(inplace=True)]
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            layers.append(Block(inputs, width, 2 if stage and not block else 1))
            inputs = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers)


def build(arguments: argparse.Namespace, device: torch.device) -> Iteration:
    """Return a training step on one batch that stays on the device."""
    model = residual_net(arguments.widths, arguments.blocks, arguments.classes).to(device)
    if arguments.compile:
        model.compile()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True
    )
    images = torch.randn(arguments.batch, 3, arguments.size, arguments.size, device=device)
    labels = torch.randint(arguments.classes, (arguments.batch,), device=device)

    def iteration() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        torch.autograd.backward(loss)
        optimizer.step()

    return iteration


def main() -> None:
    """Read the sizes and capture."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--blocks", type=int, default=2, help="blocks of each width")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="height and width of an image")
    parser.add_argument("--classes", type=int, default=100)
    arguments = parser.parse_args()
    capture(lambda device: build(arguments, device), arguments)


if __name__ == "__main__":
    main()
