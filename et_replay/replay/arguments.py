"""A recorded call made callable: constants in torch's types, and the places where tensors go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload

from et_replay.execution_trace import Node, Opaque, TensorRef, Value, tensors
from et_replay.program.argument_names import argument_names
from et_replay.replay.constants import COMPLEX, DeviceMap, constant, in_words
from et_replay.replay.operators import Unresolvable, base_name
from et_replay.replay.signature import Parameter, parameters

# Six recorded decimals turn every smaller epsilon into 0.0, which would divide by zero.
_EPSILON_NAMES = ("eps", "epsilon")
_EPSILON = 1e-5

# Operators that take a number where the schema says Tensor, and promote types as for numbers.
_NUMBERS_AS_TENSORS = frozenset(
    f"aten::{name}{ending}"
    for name in (
        *("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide"),
        *("floor_divide", "fmod", "remainder"),
    )
    for ending in ("", "_")
)
_NUMBERS: dict[str, int | float] = {"double": 1.0, "long int": 1, "long": 1}


@dataclass(slots=True)
class BoundCall:
    """A call ready but for its tensors, whose places hold None until the caller puts them in.

    `singles` pairs an argument's position with a tensor's index in the flattened inputs of the
    node; `lists` pairs it with one index for each entry, -1 for an undefined one. Keyword-only
    arguments have the same by name. `storages` pairs a position with an index in the flattened
    *outputs*: the argument is the storage of that output, which the trace only calls `<Storage>`.
    Arguments that equal their defaults are left out, as parsing them takes time.
    """

    function: Callable[..., Any]
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    singles: tuple[tuple[int, int], ...] = ()
    lists: tuple[tuple[int, tuple[int, ...]], ...] = ()
    keyword_singles: tuple[tuple[str, int], ...] = ()
    keyword_lists: tuple[tuple[str, tuple[int, ...]], ...] = ()
    storages: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class RecordedArgument:
    """A parameter with its recorded value, `first` being the flat index of its first tensor."""

    parameter: Parameter
    value: Value
    first: int


def recorded_arguments(overload: OpOverload, node: Node) -> Iterator[RecordedArgument]:
    """Pair arguments with recorded values: by name, or by position where names have changed."""
    known = {parameter.name: parameter for parameter in parameters(overload)}
    names = argument_names(node.op_schema) or tuple(known)
    if len(names) != len(node.inputs):
        raise Unresolvable(f"{len(node.inputs)} of its {len(names)} arguments were recorded")
    if len(names) == len(known) and not known.keys() >= set(names):
        names = tuple(known)
    first = 0
    for name, value in zip(names, node.inputs, strict=True):
        if name in known:
            yield RecordedArgument(known[name], value, first)
        if isinstance(value, (TensorRef, tuple)):
            first += sum(1 for _ in tensors((value,)))


def bind(overload: OpOverload, node: Node, device: DeviceMap) -> BoundCall:
    """Bind the recorded arguments of `node` to `overload`.

    `device` maps recorded device names to devices here. Raises Unresolvable naming the argument
    that a trace does not hold, or that torch here does not know.
    """
    binder = _Binder(overload, node, device)
    for argument in recorded_arguments(overload, node):
        binder.add(argument)
    return binder.call()


class _Binder:
    """Collects converted arguments by name, and gives each its place once all are known."""

    def __init__(self, overload: OpOverload, node: Node, device: DeviceMap) -> None:
        self.overload = overload
        self.node = node
        self.device = device
        self.constants: dict[str, Any] = {}
        self.single: dict[str, int] = {}
        self.list: dict[str, tuple[int, ...]] = {}
        self.storage: dict[str, int] = {}
        self.notes: list[str] = []

    def add(self, argument: RecordedArgument) -> None:
        parameter, value = argument.parameter, argument.value
        name, kind = parameter.name, parameter.kind
        if value is None and (parameter.optional or kind == "TensorType"):
            self.constants[name] = None
        elif kind == "TensorType" and parameter.depth:
            self._add_list(name, value, argument.first)
        elif kind == "TensorType":
            self._add_tensor(name, value, argument.first)
        elif kind == "StorageType":
            self.storage[name] = 0
        elif kind == "FloatType" and name in _EPSILON_NAMES and value == 0:
            self._add_epsilon(parameter)
        elif name == "pin_memory" and value:
            self.constants[name] = self._can_pin() or None
        else:
            self.constants[name] = constant(parameter, value, self.device)
            if isinstance(value, Opaque) and value.kind == COMPLEX:
                self.notes.append(f"{name} was a complex number, which no trace holds: it is 1j")

    def _add_tensor(self, name: str, value: Value, index: int) -> None:
        if not isinstance(value, TensorRef):
            raise Unresolvable(
                f"argument {name} should be a tensor, the trace has {in_words(value)}"
            )
        if not value.defined:
            self.constants[name] = None
        elif self._is_number(value):
            self.constants[name] = _NUMBERS[value.dtype]
        else:
            self.single[name] = index

    def _add_list(self, name: str, values: Value, index: int) -> None:
        entries = []
        for value in values if isinstance(values, tuple) else (values,):
            if isinstance(value, TensorRef):
                entries.append(index if value.defined else -1)
                index += 1
            elif value is None:
                entries.append(-1)
            else:
                raise Unresolvable(
                    f"argument {name} is no flat list of tensors: it holds {in_words(value)}"
                )
        self.list[name] = tuple(entries)

    def _add_epsilon(self, parameter: Parameter) -> None:
        value = self.constants[parameter.name] = parameter.default or _EPSILON
        self.notes.append(
            f"{parameter.name} was recorded as 0.0, as a trace keeps six decimals,"
            f" and is replayed as {value:g}"
        )

    def _is_number(self, tensor: TensorRef) -> bool:
        """Tell whether a tensor was a number: as a tensor it would decide the result's type."""
        return (
            tensor.shape == ()
            and tensor.device == "cpu"
            and tensor.dtype in _NUMBERS
            and base_name(self.overload) in _NUMBERS_AS_TENSORS
            and any(output.dtype != tensor.dtype for output in tensors(self.node.outputs))
        )

    def _can_pin(self) -> bool:
        """Tell whether memory can be pinned: only host memory, and only beside an accelerator."""
        place = self.constants.get("device")
        if place is None:
            first = next((tensor.device for tensor in tensors(self.node.inputs)), "cpu")
            place = self.device(first)
        return torch.cuda.is_available() and place.type == "cpu"

    def call(self) -> BoundCall:
        known = parameters(self.overload)
        positional = [parameter for parameter in known if not parameter.keyword_only]
        while positional and self._is_default(positional[-1]):
            positional.pop()
        place = {parameter.name: position for position, parameter in enumerate(positional)}
        single, listed = self.single.items(), self.list.items()
        return BoundCall(
            # `_op` is what OpOverload.__call__ forwards to: calling it saves a frame a call.
            function=getattr(self.overload, "_op", self.overload),
            args=[self.constants.get(each.name, each.default) for each in positional],
            kwargs={
                each.name: self.constants.get(each.name)
                for each in known
                if each.keyword_only and not self._is_default(each)
            },
            singles=tuple((place[name], index) for name, index in single if name in place),
            lists=tuple((place[name], indices) for name, indices in listed if name in place),
            keyword_singles=tuple((name, index) for name, index in single if name not in place),
            keyword_lists=tuple((name, indices) for name, indices in listed if name not in place),
            storages=tuple((place[name], index) for name, index in self.storage.items()),
            notes=tuple(self.notes),
        )

    def _is_default(self, parameter: Parameter) -> bool:
        name = parameter.name
        if name in self.single or name in self.list or name in self.storage:
            return False
        if not parameter.has_default:
            return False
        value = self.constants.get(name, parameter.default)
        return type(parameter.default) is type(value) and bool(parameter.default == value)
