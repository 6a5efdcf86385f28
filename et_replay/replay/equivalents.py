"""What runs instead of an operator that the device lacks, or that needs the recorded shapes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from et_replay.execution_trace import Node, TensorRef, tensors
from et_replay.program.argument_names import argument_names
from et_replay.replay import attention, recurrent
from et_replay.replay.conforming import cycled
from et_replay.replay.operators import (
    Unresolvable,
    base_name,
    has_kernel,
    has_mask,
    is_data_dependent,
)
from et_replay.replay.recorded_results import Equivalent, as_recorded, recorded_results
from et_replay.replay.signature import parameters


def executable(overload: OpOverload, device_type: str, node: Node) -> Equivalent:
    """Return what to call for `node` on a device: torch's operator, else an equivalent.

    Raises Unresolvable where there is neither.
    """
    found = equivalent(overload, device_type, node)
    if found is not None:
        return found
    if not has_kernel(overload, device_type):
        raise Unresolvable(f"torch has no kernel for {device_type}")
    kernel: Equivalent = getattr(overload, "_op", overload)
    return kernel


def equivalent(overload: OpOverload, device_type: str, node: Node) -> Equivalent | None:
    """Return a function to call in the operator's place; None where torch's own does, or none can.

    It takes the same arguments, and its results have the recorded shapes, types and strides.
    """
    name = base_name(overload)
    for pattern, factory in _EVERYWHERE:
        found = factory(overload, device_type, node) if re.fullmatch(pattern, name) else None
        if found is not None:
            return found
    if device_type == "meta":
        unknown = name in _HOST_VALUES or is_data_dependent(overload, node)
        lacking = re.fullmatch(_LACKING_PARTS, name) or not has_kernel(overload, "meta")
        shapes_only = unknown or lacking
        return recorded_results(overload, node) if shapes_only else None
    if has_kernel(overload, device_type):
        return None
    for pattern, function in _VENDOR if device_type == "cpu" else ():
        if re.fullmatch(pattern, name):
            return as_recorded(node, _by_name(overload, function))
    table = importlib.import_module("torch._decomp").decomposition_table
    return as_recorded(node, table[overload]) if overload in table else None


def _by_name(overload: OpOverload, function: Equivalent) -> Equivalent:
    """Call `function` with every argument by its name, `grad_out_` being called `grad_out`."""
    names = [parameter.name.rstrip("_") for parameter in parameters(overload)]
    return lambda *args, **kwargs: function(**dict(zip(names, args, strict=False)), **kwargs)


def _nothing(overload: OpOverload, device_type: str, node: Node) -> Equivalent:
    return lambda *args, **kwargs: None


def _unpinned(overload: OpOverload, device_type: str, node: Node) -> Equivalent | None:
    """Memory is pinned for an accelerator; where there is none, make a copy in host memory."""
    pinned = torch.cuda.is_available() and device_type != "meta"
    return None if pinned else lambda tensor, *args, **kwargs: tensor.clone()


def _trained_bag(overload: OpOverload, device_type: str, node: Node) -> Equivalent | None:
    """A bag whose weights get no gradient, as in a replay, returns less for a backward pass."""
    results = list(tensors(node.outputs))
    if len(results) < 2 or 0 in results[1].shape:
        return None

    def bag(weight: torch.Tensor, *args: Any) -> Any:
        *given, padding = args if len(args) == _BAG_ARGUMENTS else (*args, None)
        rows = weight.shape[0]
        padding = -1 if padding is None else padding + rows * (padding < 0)
        arguments: Any = (weight, *given, padding)
        return torch._embedding_bag(*arguments)

    return bag


def _with_gradients(overload: OpOverload, device_type: str, node: Node) -> Equivalent | None:
    """Return what a backward pass takes, if the job's call did: it does so by the grad mode."""
    results = list(tensors(node.outputs))
    if not results or not results[-1].defined:
        return None

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            return overload(*args, **kwargs)

    return run


def _masked_put(overload: OpOverload, device_type: str, node: Node) -> Equivalent | None:
    """Write as many rows as were recorded: a mask with made-up values has others."""
    values = dict(zip(argument_names(node.op_schema), node.inputs, strict=False))
    target, indices, source = (values.get(name) for name in ("self", "indices", "values"))
    if device_type == "meta" or not isinstance(indices, tuple) or not has_mask(indices):
        return None
    if not isinstance(target, TensorRef) or not isinstance(source, TensorRef):
        return None
    consumed = sum(
        len(index.shape) if isinstance(index, TensorRef) and has_mask((index,)) else 1
        for index in indices
    )
    trailing = len(target.shape) - consumed
    places = source.shape[-1 - trailing] if 0 <= trailing < len(source.shape) else 1
    return None if places == 1 else _put_rows(overload, places)


def _put_rows(overload: OpOverload, places: int) -> Equivalent:
    def put(target: torch.Tensor, indices: Any, *args: Any, **kwargs: Any) -> Any:
        expanded: list[torch.Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                expanded.append(index)
            else:
                rows = index.nonzero()
                expanded.extend(cycled(rows, (places, rows.shape[1])).unbind(1))
        return overload(target, expanded, *args, **kwargs)

    return put


def _convolution(
    *,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    bias: torch.Tensor | None = None,
    groups: int = 0,
    output_padding: list[int] | None = None,
    z: torch.Tensor | None = None,
    alpha: float | None = None,
    activation: bool = False,
    **others: Any,
) -> torch.Tensor:
    source, transposed = others["self"], output_padding is not None
    groups = groups or source.shape[1]
    result = torch.convolution(
        source, weight, bias, stride, padding, dilation, transposed, output_padding or [0], groups
    )
    if z is not None:
        result = result.add_(z, alpha=1.0 if alpha is None else alpha)
    return result.relu_() if activation else result


def _convolution_relu(**arguments: Any) -> torch.Tensor:
    return _convolution(activation=True, **arguments)


def _batch_norm(**call: Any) -> Any:
    names = ("input", "weight", "bias", "running_mean", "running_var", "training")
    settings = (call["exponential_average_factor"], call["epsilon"])
    arguments: Any = (*(call.get(name) for name in names), *settings)
    return torch.native_batch_norm(*arguments)


def _product(*, mat2: torch.Tensor, out_dtype: torch.dtype, **others: Any) -> torch.Tensor:
    product: torch.Tensor = others["self"].to(out_dtype) @ mat2.to(out_dtype)
    return product


def _masked_scale(*, mask: torch.Tensor, scale: float, **others: Any) -> torch.Tensor:
    scaled: torch.Tensor = others["self"] * mask * scale
    return scaled


def _grid_sampler(**arguments: Any) -> torch.Tensor:
    return torch.grid_sampler(arguments["self"], arguments["grid"], 0, 0, True)


def _affine_grid(*, theta: torch.Tensor, **size: int) -> torch.Tensor:
    return torch.affine_grid_generator(theta, [size[name] for name in "NCHW"], True)


Factory = Callable[[OpOverload, str, Node], Equivalent | None]

_HOST_VALUES = frozenset(
    f"aten::{name}" for name in ("_local_scalar_dense", "allclose", "equal", "is_nonzero", "item")
)

# Registered for every device, but made of parts that meta has no kernel for.
_LACKING_PARTS = (
    "aten::(mkldnn_.*|combinations|corrcoef|cov|ctc_loss|histogramdd|linalg_lstsq"
    "|slow_conv3d|thnn_conv2d)"
)

_BAG_ARGUMENTS = 8  # besides the weights, the index of padding included

# Made-up values fail assertions, one stream has no other to wait for, nothing gets a gradient.
_EVERYWHERE: tuple[tuple[str, Factory], ...] = (
    ("aten::(record_stream|_assert_async|_assert_scalar)", _nothing),
    ("aten::_?pin_memory", _unpinned),
    ("aten::embedding_bag", _trained_bag),
    ("aten::mkldnn_rnn_layer", _with_gradients),
    ("aten::_?(unsafe_)?index_put(_impl)?_?", _masked_put),
)

_BACKWARD = attention.scaled_dot_product_backward
_VENDOR: tuple[tuple[str, Equivalent], ...] = (
    ("aten::(cudnn|miopen|mps)_(depthwise_)?convolution(_transpose)?", _convolution),
    ("aten::_?conv_depthwise[23]d", _convolution),
    ("aten::(cudnn|miopen)_convolution(_add)?_relu", _convolution_relu),
    ("aten::(cudnn|miopen)_batch_norm", _batch_norm),
    ("aten::b?mm", _product),
    ("aten::_masked_scale", _masked_scale),
    ("aten::cudnn_grid_sampler", _grid_sampler),
    ("aten::cudnn_affine_grid_generator", _affine_grid),
    ("aten::_scaled_dot_product_(flash|efficient|cudnn)_attention", attention.scaled_dot_product),
    ("aten::_scaled_dot_product_(flash|efficient|cudnn)_attention_backward", _BACKWARD),
    ("aten::_cudnn_attention_forward", attention.scaled_dot_product),
    ("aten::_cudnn_attention_backward", _BACKWARD),
    (
        "aten::_(flash|efficient)_attention_forward",
        attention.rows_before_heads(attention.scaled_dot_product),
    ),
    ("aten::_(flash|efficient)_attention_backward", attention.rows_before_heads(_BACKWARD)),
    ("aten::_cudnn_rnn|aten::miopen_rnn", recurrent.run),
    ("aten::_cudnn_rnn_backward|aten::miopen_rnn_backward", recurrent.run_backward),
)
