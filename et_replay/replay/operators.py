"""From a recorded node to the dispatcher's overload for it, and what is known of overloads."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
from torch._ops import OpOverload, OpOverloadPacket

from et_replay.errors import ReplayError
from et_replay.execution_trace import Node, Opaque, TensorRef, Value
from et_replay.program.argument_names import argument_names
from et_replay.replay.signature import Parameter, parameters

_SCHEMA = re.compile(r"\s*(?P<name>\w+::\w+)(?:\.(?P<overload>\w+))?\s*\(")

# Meta has a fallback that only raises, so the dispatcher counts every operator as supported there;
# the keys of real kernels tell.
_META_KEYS = (
    "Meta",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
_DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA", "hip": "CUDA", "privateuseone": "PrivateUse1"}
# Tensors that are not laid out by strides, or have a scale, have kernels of their own.
_KINDS_OF_TENSORS = ("Quantized", "Sparse", "SparseCsr", "Mkldnn", "NestedTensor")

# Modules of torch that define operators which `import torch` does not.
_DEFINED_BY = {
    "ao": "torch._functorch._activation_offloading.offload_ops",
    "fsdp": "torch.distributed.fsdp",
    "prims": "torch._prims",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "rngprims": "torch._prims.rng_prims",
    "torch_attn": "torch.nn.attention.varlen",
    "torch_nn": "torch.nn.modules.linear_cross_entropy",
}

# Operators whose result shapes depend on the values of their inputs. `is_data_dependent` adds those
# that do so for some arguments.
_DATA_DEPENDENT = frozenset(
    (
        "aten::_pack_padded_sequence",
        "aten::_pad_packed_sequence",
        "aten::_unique",
        "aten::_unique2",
        "aten::argwhere",
        "aten::bincount",
        "aten::masked_select",
        "aten::nonzero",
        "aten::nonzero_numpy",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::unique_dim_consecutive",
        "torchvision::nms",
    )
)
_MASKS = ("bool", "unsigned char")


class Unresolvable(ReplayError):  # noqa: N818 - a verdict on a call, which becomes a recorded skip
    """A recorded call cannot be made here; `reason` says why in a phrase."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def base_name(overload: OpOverload) -> str:
    """Return `aten::add` for every overload of it."""
    return str(overload._schema.name)


def full_name(overload: OpOverload) -> str:
    """Return `aten::add.Tensor` for that overload, `aten::relu` for the default one."""
    schema = overload._schema
    name, which = str(schema.name), str(schema.overload_name)
    return f"{name}.{which}" if which else name


def recorded_name(node: Node) -> str:
    """Return `namespace::name.overload` as the node's schema begins, "" if it has none."""
    match = _SCHEMA.match(node.op_schema)
    if match is None:
        return node.op_schema
    return f"{match['name']}.{match['overload']}" if match["overload"] else match["name"]


def resolve(node: Node) -> OpOverload:
    """Find the overload that `node` recorded.

    A renamed or changed overload is found by its argument names, a node without schema by its
    arguments. Raises Unresolvable when torch, with the libraries loaded into it, has none.
    """
    match = _SCHEMA.match(node.op_schema)
    if match is None:
        return _by_arguments(_packet(node.name), node)
    found = _by_names(match["name"], match["overload"] or "default", _given_names(node))
    return found or _by_arguments(_packet(match["name"]), node)


def _given_names(node: Node) -> tuple[str, ...]:
    """Name the arguments of `node`, but for absent ones, which another overload may lack."""
    names = argument_names(node.op_schema)
    if len(names) != len(node.inputs):
        return names
    pairs = zip(names, node.inputs, strict=True)
    return tuple(name for name, value in pairs if value is not None)


@cache
def _by_names(qualified: str, overload: str, names: Sequence[str]) -> OpOverload | None:
    packet = _packet(qualified)
    for candidate in (getattr(packet, overload, None), *_overloads(packet)):
        if isinstance(candidate, OpOverload) and _accepts_names(candidate, names):
            return candidate
    return None


def _packet(qualified: str) -> OpOverloadPacket:
    namespace, _, name = qualified.partition("::")
    if namespace in _DEFINED_BY:
        with contextlib.suppress(ImportError):  # an older torch, which cannot have recorded it
            importlib.import_module(_DEFINED_BY[namespace])
    packet = getattr(getattr(torch.ops, namespace), name, None) if name.isidentifier() else None
    if isinstance(packet, OpOverloadPacket):
        return packet
    known: Iterable[str] = torch._C._dispatch_get_all_op_names()
    if name and not any(operator.startswith(f"{namespace}::") for operator in known):
        raise Unresolvable(
            f"torch has no operator {qualified}; --import the module that registers it"
        )
    raise Unresolvable(f"torch {torch.__version__} has no operator {qualified}")


def _overloads(packet: OpOverloadPacket) -> list[OpOverload]:
    names: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    return [getattr(packet, name) for name in names]


def _accepts_names(overload: OpOverload, names: Sequence[str]) -> bool:
    """Tell whether arguments of these names are all that `overload` needs, and none it lacks."""
    known = parameters(overload)
    return set(names) <= {parameter.name for parameter in known} and all(
        parameter.name in names or parameter.has_default or parameter.optional
        for parameter in known
    )


def _by_arguments(packet: OpOverloadPacket, node: Node) -> OpOverload:
    for candidate in _overloads(packet):
        known = parameters(candidate)
        if len(known) == len(node.inputs) and all(map(_fits, known, node.inputs)):
            return candidate
    written = node.op_schema.partition("(")[0].strip() or f"{len(node.inputs)} recorded arguments"
    raise Unresolvable(f"torch {torch.__version__} has no overload of {packet} for {written}")


def _fits(parameter: Parameter, value: Value) -> bool:
    """Tell whether `value` can be an argument for `parameter`."""
    if value is None:
        return parameter.optional
    if parameter.depth:
        inner = parameter._replace(depth=parameter.depth - 1, optional=True)
        return isinstance(value, tuple) and all(_fits(inner, entry) for entry in value)
    if parameter.kind == "TensorType":
        return isinstance(value, TensorRef)
    if parameter.kind in ("StringType", "DeviceObjType"):
        return isinstance(value, str)
    if isinstance(value, Opaque):
        return parameter.kind.startswith(value.kind)
    if parameter.kind in ("FloatType", "NumberType"):
        return isinstance(value, (int, float))
    return isinstance(value, int)


@cache
def has_kernel(overload: OpOverload, device_type: str) -> bool:
    """Tell whether torch can run `overload` on a device, by a kernel for it or a composite one.

    A kernel for sparse or quantised tensors alone counts: who recorded the call had such tensors.
    """
    schema = overload._schema
    name = f"{schema.name}.{schema.overload_name}".removesuffix(".")
    if not torch._C._dispatch_has_kernel(name):
        return True  # TorchScript's own operators are not dispatched: they run on any tensors.
    if device_type == "meta":
        importlib.import_module("torch._meta_registrations")
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return any(has(name, key) for key in _META_KEYS)
    has_computed = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    return any(has_computed(name, key) for key in _kernel_keys(device_type))


@cache
def _kernel_keys(device_type: str) -> tuple[str, ...]:
    key = _DISPATCH_KEYS.get(device_type, device_type.upper())
    return (key, *(kind + key for kind in _KINDS_OF_TENSORS if _is_key(kind + key)))


def _is_key(name: str) -> bool:
    try:
        torch._C._dispatch_key_parse(name)
    except RuntimeError:
        return False
    return True


def is_data_dependent(overload: OpOverload, node: Node) -> bool:
    """Tell whether the shapes of `node`'s results depend on values: a replay conforms them."""
    name = base_name(overload)
    if name in _DATA_DEPENDENT:
        return True
    condition = _CONDITIONS.get(name)
    names = argument_names(node.op_schema)
    return condition is not None and condition(dict(zip(names, node.inputs, strict=False)))


def has_mask(indices: Value) -> bool:
    """Tell whether a list of index tensors holds a mask, which stands for all its true places."""
    return isinstance(indices, tuple) and any(
        isinstance(index, TensorRef) and index.dtype in _MASKS for index in indices
    )


_CONDITIONS: dict[str, Callable[[dict[str, Value]], bool]] = {
    "aten::index": lambda values: has_mask(values.get("indices")),
    "aten::_unsafe_index": lambda values: has_mask(values.get("indices")),
    "aten::one_hot": lambda values: values.get("num_classes", -1) == -1,
    "aten::repeat_interleave": lambda values: (
        isinstance(values.get("repeats"), TensorRef) and values.get("output_size") is None
    ),
    "aten::where": lambda values: values.keys() == {"condition"},
}
