"""What an operator returned in, the same with its recorded shapes and strides out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from et_replay.execution_trace import TensorRef
from et_replay.replay.values import INTEGERS


def conform(recorded: Sequence[TensorRef], results: Any) -> Any:
    """Give results their recorded shapes and strides, without waiting for the device.

    `results` is what an operator returned, `recorded` lists its tensors, undefined ones too. Along
    a dimension of another length entries repeat, or end early; a result without entries becomes
    zeros. Integers beside a result that lost rows number these rows (the inverse of `unique`), so
    they wrap around.
    """
    pairs = iter(recorded)
    paired = [(result, next(pairs, None)) for result in _leaves(results) if _is_place(result)]
    lost = [
        reference.shape[0]
        for result, reference in paired
        if result is not None and reference is not None
        if result.dim() == len(reference.shape) > 0 and reference.shape[0] < result.shape[0]
    ]
    mended = iter(
        [_mended(result, reference, min(lost, default=0)) for result, reference in paired]
    )
    return _rebuilt(results, mended)


def _is_place(result: Any) -> bool:
    return result is None or isinstance(result, torch.Tensor)


def _leaves(results: Any) -> Iterator[Any]:
    if isinstance(results, (tuple, list)):
        for result in results:
            yield from _leaves(result)
    else:
        yield results


def _rebuilt(results: Any, mended: Iterator[torch.Tensor | None]) -> Any:
    if isinstance(results, (tuple, list)):
        return type(results)([_rebuilt(result, mended) for result in results])
    return next(mended) if _is_place(results) else results


def _mended(
    result: torch.Tensor | None, reference: TensorRef | None, rows: int
) -> torch.Tensor | None:
    if result is None or reference is None or not reference.defined:
        return result
    if rows and result.dtype in INTEGERS and tuple(result.shape) == reference.shape:
        result = result.remainder(rows)
    if is_laid_out_as(result, reference):
        return result
    return cycled(result, reference.shape, reference.strides)


def is_laid_out_as(result: torch.Tensor, reference: TensorRef) -> bool:
    """Tell whether `result` has the recorded shape and strides, as far as these matter."""
    if tuple(result.shape) != reference.shape:
        return False
    if result.layout is not torch.strided:
        return True
    strides = reference.strides
    if strides is None or len(strides) != len(reference.shape) or result.numel() == 0:
        return True
    steps = zip(reference.shape, strides, result.stride(), strict=True)
    return all(size == 1 or recorded == step for size, recorded, step in steps)


def cycled(
    result: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> torch.Tensor:
    """Return a tensor of `shape` with the entries of `result`, repeated; zeros if it has none."""
    if strides is None or len(strides) != len(shape) or 0 in strides:
        target = result.new_empty(shape)
    else:
        target = result.new_empty_strided(shape, strides)
    if 0 in result.shape or result.dim() != len(shape):
        return target.zero_()
    for dimension, size in enumerate(shape):
        if result.shape[dimension] != size:
            index = torch.arange(size, device=result.device).remainder_(result.shape[dimension])
            result = result.index_select(dimension, index)
    return target.copy_(result)
