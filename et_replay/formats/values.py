"""Recorded values: the observer's type strings go in, decoders from JSON to Value come out.

A type string is parsed once and kept as a decoder, so a value costs a dict lookup and a call:

    Tensor(float)  Int  GenericList[Int,Int]  Tuple[Tensor(long int),None]
    Tensor(nullptr (uninitialized))

No decoder raises. What lacks the form that its type promises becomes `Opaque("damaged ...")`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from et_replay.execution_trace import DAMAGED, Opaque, TensorRef, Value

Decoder = Callable[[Any, Any, Any], Value]  # of value, shape, strides; None where one is missing
Item = tuple[str, Decoder]

# More elements than any tensor has; sizes in bytes stay far below what 64 bits hold.
_TOO_MANY = 2**50

# The observer nests two or three deep; decoders call each other once a level.
_MAX_NESTING = 64
_NAME = re.compile(r"[^\[\](),]*")
_PARENTHESIS = re.compile(r"[()]")
_NUMBERS = frozenset({bool, int, float})

_ITEM_SIZES = {
    **dict.fromkeys(("bool", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("short int", "short", "c10::Half", "c10::BFloat16"), 2),
    **dict.fromkeys(("int", "float", "c10::complex<c10::Half>"), 4),
    **dict.fromkeys(("long int", "long", "double", "c10::complex<float>"), 8),
    "c10::complex<double>": 16,
}
"""Bytes of an element by its type; a tensor that was recorded without storage has 0."""


class ValueDecoders(dict[Any, Decoder]):
    """The decoders of a trace's type strings, made on first use.

    Equal shapes, strides and device names of one trace become one object: a trace repeats them
    thousands of times.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dimensions: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._devices: dict[str, str] = {}
        self._extents: dict[tuple[tuple[int, ...], tuple[int, ...] | None], bool] = {}

    def __missing__(self, type_name: object) -> Decoder:
        decoder = self._parse(type_name) if isinstance(type_name, str) else _unknown("")
        self[type_name] = decoder
        return decoder

    def decode(
        self,
        values: Sequence[Any],
        types: Sequence[Any],
        shapes: Sequence[Any],
        strides: Sequence[Any] | None,
    ) -> tuple[Value, ...]:
        """Decode parallel columns; types, shapes and strides may end before the values do.

        `strides` is None where the schema records none.
        """
        count = len(values)
        if strides is None:
            strides = (None,) * count
        if not len(types) == len(shapes) == len(strides) == count:
            types, shapes, strides = (_padded(column, count) for column in (types, shapes, strides))
        rows = zip(types, values, shapes, strides, strict=True)
        try:
            return tuple([self[name](value, shape, step) for name, value, shape, step in rows])
        except TypeError:  # a type that cannot even be looked up: a list, an object
            types = [name if isinstance(name, str) else None for name in types]
        rows = zip(types, values, shapes, strides, strict=True)
        return tuple([self[name](value, shape, step) for name, value, shape, step in rows])

    def _parse(self, type_name: str) -> Decoder:
        """Build the decoder of a type string, with a stack of the lists that are open."""
        stack: list[tuple[str, list[Item]]] = [("", [])]
        position = 0
        while position < len(type_name) and len(stack) <= _MAX_NESTING:
            name = _NAME.match(type_name, position)[0]  # type: ignore[index]  # matches always
            position += len(name) + 1
            separator = type_name[position - 1 : position]
            name = name.strip()
            if separator == "[":
                stack.append((name, []))
            elif separator == "(":
                end = _closing(type_name, position)
                stack[-1][1].append(self._leaf(name, type_name[position : end - 1]))
                position = end
            else:
                if name:
                    stack[-1][1].append(self._leaf(name, None))
                if separator == "]" and len(stack) > 1:
                    container, items = stack.pop()
                    stack[-1][1].append((container, _container(container, items)))
        whole = stack[0][1]
        return whole[0][1] if len(stack) == len(whole) == 1 else _unknown(type_name)

    def _leaf(self, name: str, argument: str | None) -> Item:
        if name == "Tensor":
            return name, self._tensor(argument or "")
        if argument is not None:
            return name, _unknown(f"{name}({argument})")
        return name, _SCALARS.get(name) or _unknown(name)

    def _tensor(self, dtype: str) -> Decoder:
        dimensions, devices, check = self._dimensions, self._devices, self._check
        extents, measure = self._extents, self._measure
        integers = frozenset({int}).issuperset
        damaged, item_size = _damaged(f"Tensor({dtype})"), _ITEM_SIZES.get(dtype)

        def decode(value: Any, shape: Any, strides: Any) -> Value:
            try:
                if len(value) == 5:  # files of 2022 name no device
                    value = [*value, ""]
                tensor_id, storage_id, offset, numel, itemsize, device = value
                if shape is None:
                    shape, strides = (numel,), None
                if not tensor_id.__class__ is storage_id.__class__ is offset.__class__ is int:
                    return damaged
                if not numel.__class__ is itemsize.__class__ is int:
                    return damaged
                size = tuple(shape)  # looked up only if of integers, as true and 1.0 equal 1
                known = integers(map(type, size)) and dimensions.get(size)
                size = known or check(size)
                if strides is not None:
                    strides = tuple(strides)
                    known = integers(map(type, strides)) and dimensions.get(strides)
                    strides = known or check(strides)
                    if len(strides) != len(size):
                        strides = None
                device = devices.get(device) or devices.setdefault(device, device)
                if not (0 <= offset < _TOO_MANY and 0 <= numel < _TOO_MANY and 0 <= itemsize <= 64):
                    return damaged
                if itemsize != item_size and itemsize and item_size:
                    return damaged
                if not (extents.get((size, strides)) or measure(size, strides)):
                    return damaged
            except (TypeError, ValueError):
                return damaged
            if device.__class__ is not str:
                return damaged
            return TensorRef(
                tensor_id, storage_id, offset, numel, itemsize, device, dtype, size, strides
            )

        return decode

    def _check(self, dimensions: tuple[Any, ...]) -> tuple[int, ...]:
        """Keep a shape, or strides, on first sight; raises where one is no size that can be."""
        if any(type(size) is not int for size in dimensions):
            raise TypeError("a dimension is not an integer")
        if not all(0 <= size < _TOO_MANY for size in dimensions):
            raise ValueError("a dimension is not the size of anything")
        return self._dimensions.setdefault(dimensions, dimensions)

    def _measure(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
        """Tell whether a tensor of this form can exist, and remember if so."""
        steps = strides or (1,) * len(shape)
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
        possible = extent < _TOO_MANY and math.prod(shape) < _TOO_MANY
        if possible:
            self._extents[shape, strides] = True
        return possible


def _padded(column: Sequence[Any], count: int) -> list[Any]:
    return [*column[:count], *[None] * (count - len(column))]


def _closing(text: str, position: int) -> int:
    """Return the position after the parenthesis that closes the one before `position`."""
    depth = 1
    for match in _PARENTHESIS.finditer(text, position):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return len(text) + 1


def _damaged(type_name: str) -> Opaque:
    return Opaque(DAMAGED + type_name[:80])


def _container(name: str, items: list[Item]) -> Decoder:
    """Return the decoder of a list or a tuple with these element types."""
    decoders = [decoder for _, decoder in items]
    plain = all(kind in ("Int", "Bool") for kind, _ in items)
    # a list has one element type; where the observer names fewer than it wrote, the last one holds
    rest = decoders[-1] if decoders and name == "GenericList" else _unknown("")
    damaged, opaque = _damaged(name), Opaque(name[:80])

    def decode(value: Any, shapes: Any, strides: Any) -> Value:
        if value.__class__ is not list:
            return opaque if value.__class__ is str else damaged
        count = len(value)
        if plain and count == len(decoders) and _NUMBERS.issuperset(map(type, value)):
            return tuple(value)
        if shapes.__class__ is not list or len(shapes) != count:
            shapes = _padded(shapes if isinstance(shapes, list) else (), count)
        if strides.__class__ is not list or len(strides) != count:
            strides = _padded(strides if isinstance(strides, list) else (), count)
        parts = decoders
        if count != len(parts):
            parts = [*parts[:count], *[rest] * (count - len(parts))]
        rows = zip(parts, value, shapes, strides, strict=True)
        return tuple([part(item, shape, step) for part, item, shape, step in rows])

    return decode


def _number(kind: str) -> Decoder:
    damaged, opaque = _damaged(kind), Opaque(kind)

    def decode(value: Any, shape: Any, strides: Any) -> Value:
        if value.__class__ in _NUMBERS:
            return cast(Value, value)
        return opaque if _is_tag(value) else damaged

    return decode


def _double(value: Any, shape: Any, strides: Any) -> Value:
    """Read a float; the observer writes infinities and not-a-numbers as strings."""
    if isinstance(value, float):
        return value
    if _is_tag(value):
        return Opaque("Double")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return _damaged("Double")


def _text(kind: str) -> Decoder:
    damaged = _damaged(kind)

    def decode(value: Any, shape: Any, strides: Any) -> Value:
        return value if value.__class__ is str else damaged

    return decode


def _none(value: Any, shape: Any, strides: Any) -> Value:
    return None


def _unknown(name: str) -> Decoder:
    """Return the decoder of a type without meaning here, or of a value without type ("")."""
    opaque = Opaque(name[:80] or "untyped")

    def decode(value: Any, shape: Any, strides: Any) -> Value:
        if value is None or value.__class__ in _NUMBERS:
            return cast(Value, value)
        if not name and value.__class__ is str:
            return Opaque(value[1:-1]) if _is_tag(value) else str(value)
        return opaque

    return decode


def _is_tag(value: Any) -> bool:
    """Tell whether a value is only named, as in `<Generator>`."""
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


_SCALARS: dict[str, Decoder] = {
    "Int": _number("Int"),
    "Bool": _number("Bool"),
    "Double": _double,
    "String": _text("String"),
    "Device": _text("Device"),
    "None": _none,
}
