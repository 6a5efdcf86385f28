"""Recurrent kernels of vendors, forward and backward, on top of torch's own recurrent layers."""

from __future__ import annotations

from typing import Any

import torch

Results = tuple[Any, ...]
_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")


def run(
    *,
    input: torch.Tensor,
    weight: list[torch.Tensor],
    weight_stride0: int,
    hx: torch.Tensor,
    cx: torch.Tensor | None = None,
    mode: int,
    num_layers: int,
    batch_first: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: list[int],
    **_: Any,
) -> Results:
    """Run a layer without dropout between its levels: the result and the last states."""
    function = getattr(torch, _MODES[mode])
    state: Any = (hx, cx) if cx is not None else hx
    # With biases a level has four weights, without them two, and one more for a projection.
    has_biases = weight_stride0 >= 4
    settings = (weight, has_biases, num_layers, 0.0, train, bidirectional)
    if batch_sizes:
        found = function(input, torch.tensor(batch_sizes), state, *settings)
    else:
        found = function(input, state, *settings, batch_first)
    return tuple(found)


def run_backward(
    *,
    input: torch.Tensor,
    weight: list[torch.Tensor],
    hx: torch.Tensor,
    output_mask: list[bool],
    cx: torch.Tensor | None = None,
    grad_output: torch.Tensor | None = None,
    grad_hy: torch.Tensor | None = None,
    grad_cy: torch.Tensor | None = None,
    **settings: Any,
) -> Results:
    """Differentiate `run` by running it again under autograd, which needs copies of its inputs."""
    with torch.inference_mode(False), torch.enable_grad():
        states = [state for state in (hx, cx) if state is not None]
        leaves = [leaf.clone().requires_grad_() for leaf in (input, *states, *weight)]
        found = run(
            input=leaves[0],
            hx=leaves[1],
            cx=leaves[2] if cx is not None else None,
            weight=leaves[1 + len(states) :],
            **settings,
        )
        given = zip(found, (grad_output, grad_hy, grad_cy), strict=False)
        pairs = [(result, slope) for result, slope in given if slope is not None]
        results, slopes = [pair[0] for pair in pairs], [pair[1].clone() for pair in pairs]
        found = torch.autograd.grad(results, leaves, slopes, allow_unused=True)
    before = (found[0], found[1], found[2] if cx is not None else None)
    return (*before, list(found[1 + len(states) :]))
