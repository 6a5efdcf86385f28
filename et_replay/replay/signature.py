"""An overload of an operator in, its parameters in plain Python out."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from torch._ops import OpOverload


class Parameter(NamedTuple):
    """One parameter of an overload.

    `kind` is the schema type inside of lists and question marks, as in TensorType or IntType;
    `depth` counts the lists around it, and `length` is the 2 of `int[2]`.
    """

    name: str
    kind: str
    depth: int
    optional: bool
    length: int | None
    keyword_only: bool
    has_default: bool
    default: Any
    text: str


@cache
def parameters(overload: OpOverload) -> tuple[Parameter, ...]:
    """List the parameters of `overload` in order."""
    found = []
    for argument in overload._schema.arguments:
        kind: Any = argument.real_type
        text, depth = str(kind), 0
        optional = kind.kind() == "OptionalType"
        while kind.kind() in ("OptionalType", "ListType"):
            depth += kind.kind() == "ListType"
            kind = kind.getElementType()
        found.append(
            Parameter(
                name=argument.name,
                kind=kind.kind(),
                depth=depth,
                optional=optional,
                length=getattr(argument, "N", None),
                keyword_only=argument.kwarg_only,
                has_default=argument.has_default_value(),
                default=argument.default_value if argument.has_default_value() else None,
                text=text,
            )
        )
    return tuple(found)
