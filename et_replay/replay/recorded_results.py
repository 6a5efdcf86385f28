"""A node in, a function whose results have the form that the trace recorded of them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._ops import OpOverload

from et_replay.execution_trace import Node, TensorRef, Value, tensors
from et_replay.replay.conforming import is_laid_out_as
from et_replay.replay.dtypes import torch_dtype
from et_replay.replay.operators import Unresolvable

Equivalent = Callable[..., Any]
"""What can be called in an operator's place, with the same arguments."""


def as_recorded(node: Node, function: Equivalent) -> Equivalent:
    """Give the results of `function` the recorded form; those it does not compute are zeros."""
    outputs = node.outputs

    def conforming(*args: Any, **kwargs: Any) -> Any:
        results = function(*args, **kwargs)
        listed = list(results) if isinstance(results, (tuple, list)) else [results]
        listed += [None] * (len(outputs) - len(listed))
        place = next(arg for arg in _flat(args) if isinstance(arg, torch.Tensor)).device
        fitted = tuple(
            _fit(value, result, place) for value, result in zip(outputs, listed, strict=False)
        )
        return fitted[0] if len(fitted) == 1 else fitted

    return conforming


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from value
        else:
            yield value


def _fit(value: Value, result: Any, place: torch.device) -> Any:
    if isinstance(value, tuple):
        results = result if isinstance(result, (tuple, list)) else [None] * len(value)
        return [_fit(each, one, place) for each, one in zip(value, results, strict=False)]
    if not isinstance(value, TensorRef):
        return value if result is None else result
    known = isinstance(result, torch.Tensor)
    if known and result.dtype == torch_dtype(value.dtype) and is_laid_out_as(result, value):
        return result
    target = _empty(value, result.device if known else place)
    if target is None or (known and result.shape != target.shape):
        return None if target is None else target.zero_()
    return target.copy_(result) if known else target.zero_()


def _empty(value: TensorRef, place: torch.device) -> torch.Tensor | None:
    dtype = torch_dtype(value.dtype)
    if not value.defined or dtype is None:
        return None
    if value.strides is None or len(value.strides) != len(value.shape):
        return torch.empty(value.shape, dtype=dtype, device=place)
    return torch.empty_strided(value.shape, value.strides, dtype=dtype, device=place)


def recorded_results(overload: OpOverload, node: Node) -> Equivalent:
    """On meta, where shapes are all there is: recorded results, or the argument written to."""
    for value in tensors(node.outputs):
        if value.defined and torch_dtype(value.dtype) is None:
            raise Unresolvable(f"torch {torch.__version__} has no type {value.dtype}")
    schema, place = overload._schema, torch.device("meta")
    names = [argument.name for argument in schema.arguments]
    written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    in_place = bool(schema.returns and schema.returns[0].alias_info and written)

    def results(*args: Any, **kwargs: Any) -> Any:
        if in_place:
            call = dict(zip(names, args, strict=False)) | kwargs
            found = [call[name] for name in written]
        else:
            found = [_fit(value, None, place) for value in node.outputs]
        return (
            None if not schema.returns else found[0] if len(schema.returns) == 1 else tuple(found)
        )

    return results
