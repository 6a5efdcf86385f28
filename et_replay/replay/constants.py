"""Recorded values of arguments that are no tensors, in the types that a schema asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from et_replay.execution_trace import Opaque, TensorRef, Value
from et_replay.replay import dtypes
from et_replay.replay.operators import Unresolvable
from et_replay.replay.signature import Parameter

DeviceMap = Callable[[str], torch.device]

_CODES: dict[str, Callable[[int], Any]] = {
    "ScalarTypeType": dtypes.scalar_type,
    "LayoutType": dtypes.layout,
    "MemoryFormatType": dtypes.memory_format,
}
COMPLEX = "ComplexDouble"
"""What a trace has in the place of a complex number: only this name."""

_INTEGERS = ("IntType", "SymIntType", "SymBoolType")
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "NumberType": lambda value: value,
    "FloatType": float,
    "BoolType": bool,
    **dict.fromkeys(_INTEGERS, int),
}


def constant(parameter: Parameter, value: Value, device: DeviceMap) -> Any:
    """Convert `value` for `parameter`; `device` maps recorded device names to devices here.

    Raises Unresolvable naming the parameter if `value` is not of its type, or not in the trace. A
    stream becomes None: a replay has one. A complex number becomes the imaginary unit, by which
    products neither grow nor shrink.
    """
    if isinstance(value, Opaque):
        if value.kind == COMPLEX and parameter.kind == "NumberType":
            return 1j
        if parameter.optional or parameter.kind == "StreamObjType":
            return None
        if value.is_damaged:
            raise _unfit(parameter, value)
        raise Unresolvable(
            f"argument {parameter.name} is a {value.kind}, which a trace does not hold"
        )
    if parameter.depth == 0:
        return _scalar(parameter, value, device)
    inner = parameter._replace(depth=parameter.depth - 1, optional=False)
    if isinstance(value, tuple):
        return [constant(inner, entry, device) for entry in value]
    return [constant(inner, value, device)] * (parameter.length or 1)


def _scalar(parameter: Parameter, value: Value, device: DeviceMap) -> Any:
    kind = parameter.kind
    if isinstance(value, str):
        if kind == "StringType":
            return value
        if kind == "DeviceObjType":
            return device(value)
    elif isinstance(value, (bool, int, float)) and not _is_too_wide(value):
        if kind in _CODES and isinstance(value, int):
            return _enumerator(parameter, value)
        if kind in _CONVERSIONS and (kind not in _INTEGERS or math.isfinite(value)):
            return _CONVERSIONS[kind](value)
    raise _unfit(parameter, value)


def _unfit(parameter: Parameter, value: Value) -> Unresolvable:
    return Unresolvable(
        f"argument {parameter.name} should be of type {parameter.text},"
        f" the trace has {in_words(value)}"
    )


def in_words(value: Value) -> str:
    """Write a recorded value as the end of a sentence that refuses it."""
    if isinstance(value, TensorRef):
        return "another tensor"
    if isinstance(value, tuple):
        return f"a list of {len(value)}"
    if isinstance(value, Opaque):
        return f"a {value.kind}" if value.is_damaged else f"no more than the name {value.kind}"
    if _is_too_wide(value):
        return "an integer of more than 64 bits"
    return repr(value)


def _is_too_wide(value: Value) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def _enumerator(parameter: Parameter, code: int) -> Any:
    found = _CODES[parameter.kind](code)
    if found is None:
        raise Unresolvable(f"argument {parameter.name} has the unknown {parameter.text} {code}")
    return found
