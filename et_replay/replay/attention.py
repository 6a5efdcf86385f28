"""Attention kernels of vendors, forward and backward, on top of torch's own for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import pad

Results = tuple[Any, ...]


def scaled_dot_product(
    *,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    is_causal: bool = False,
    attn_bias: torch.Tensor | None = None,
    scale: float | None = None,
    **_: Any,
) -> Results:
    """Attend without dropout over (batch, head, row, size): the result and its log-sum-exp."""
    heads, scale = query.shape[1], _scale(query, scale)
    factors = [_widen(each, heads, query, value) for each in (query, key, value)]
    result, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *factors, 0.0, is_causal and attn_bias is None, attn_mask=_mask(attn_bias), scale=scale
    )
    return result[..., : value.shape[-1]], sums


def scaled_dot_product_backward(
    *,
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    is_causal: bool = False,
    attn_bias: torch.Tensor | None = None,
    scale: float | None = None,
    **_: Any,
) -> Results:
    """Differentiate `scaled_dot_product`, run again as the sums of a vendor may be padded."""
    heads, scale = query.shape[1], _scale(query, scale)
    causal, mask = is_causal and attn_bias is None, _mask(attn_bias)
    factors = [_widen(each, heads, query, value) for each in (query, key, value)]
    result, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *factors, 0.0, causal, attn_mask=mask, scale=scale
    )
    slopes = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        _widen(grad_out, heads, query, value),
        *factors,
        result,
        sums,
        0.0,
        causal,
        attn_mask=mask,
        scale=scale,
    )
    return tuple(
        _narrow(slope, each) for slope, each in zip(slopes, (query, key, value), strict=True)
    )


def rows_before_heads(attention: Callable[..., Results]) -> Callable[..., Results]:
    """Adapt to tensors of (batch, row, head, size), or (row, head, size) taken as one sequence."""

    def adapted(
        *,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        grad_out: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        custom_mask_type: int = 0,
        is_causal: bool = False,
        **others: Any,
    ) -> Results:
        packed = query.dim() == 3
        others.update(query=query, key=key, value=value, attn_bias=bias)
        if grad_out is not None:
            others["grad_out"] = grad_out
        for name in {"query", "key", "value", "grad_out"} & others.keys():
            rows = others[name].unsqueeze(0) if packed else others[name]
            others[name] = rows.transpose(1, 2)
        results = attention(is_causal=is_causal or custom_mask_type > 0, **others)
        turned = (r.transpose(1, 2) if r.dim() == 4 else r for r in results)
        return tuple(r.squeeze(0) if packed else r for r in turned)

    return adapted


def _scale(query: torch.Tensor, scale: float | None) -> float:
    return float(query.shape[-1]) ** -0.5 if scale is None else scale


def _widen(
    tensor: torch.Tensor, heads: int, query: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Give a factor the most heads and columns of all; columns of zeros change no product."""
    if tensor.shape[1] != heads:
        tensor = tensor.repeat_interleave(heads // tensor.shape[1], 1)
    missing = max(query.shape[-1], value.shape[-1]) - tensor.shape[-1]
    return pad(tensor, (0, missing)) if missing else tensor


def _narrow(slope: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Undo `_widen` for a gradient."""
    batch, heads, rows, size = factor.shape
    slope = slope[..., :size]
    if slope.shape[1] == heads:
        return slope
    return slope.reshape(batch, heads, slope.shape[1] // heads, rows, size).sum(2)


def _mask(bias: torch.Tensor | None) -> torch.Tensor | None:
    """The CPU's attention takes a mask of two or four dimensions."""
    return bias.unsqueeze(1) if bias is not None and bias.dim() == 3 else bias
