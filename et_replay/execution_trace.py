"""Execution traces in memory: nodes as PyTorch's observer wrote them, decoded on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

# the names of the two kinds of root, as the observer of PyTorch 2.0 and later writes them
EXECUTION_TRACE_PROCESS_ANNOTATION = "[pytorch|profiler|execution_trace|process]"
EXECUTION_TRACE_THREAD_ANNOTATION = "[pytorch|profiler|execution_trace|thread]"


class TensorRef(msgspec.Struct, frozen=True, gc=False):
    """One recorded sight of a tensor.

    Ids are recycled addresses: neither `tensor_id` nor `storage_id` names one object for a whole
    trace, and tensors, storages and nodes have separate key spaces even where the numbers collide.
    `offset` and `strides` count elements. Traces before schema 1.1.1 have no strides: `strides` is
    None there.
    """

    tensor_id: int
    storage_id: int
    offset: int
    numel: int
    itemsize: int
    device: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None

    @property
    def defined(self) -> bool:
        """False for `at::Tensor()`, which stands for an absent optional tensor."""
        return not self.dtype.startswith("nullptr")

    @property
    def extent(self) -> int:
        """Elements spanned from `offset` on: a stride of 0 spans nothing, gaps count."""
        if 0 in self.shape:
            return 0
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel
        return 1 + sum(
            (size - 1) * abs(stride) for size, stride in zip(self.shape, self.strides, strict=True)
        )

    @property
    def end(self) -> int:
        """Bytes of the storage that this proves: (offset + extent) * itemsize, 0 if empty."""
        extent = self.extent
        return (self.offset + extent) * self.itemsize if extent else 0


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, that PyTorch gives a new tensor of `shape`."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    """Tell whether the elements lie side by side in order, as is assumed without strides.

    The stride of a dimension that has one element, or none, leads nowhere and may be any.
    """
    if strides is None:
        return True
    steps = zip(shape, strides, contiguous_strides(shape), strict=True)
    return all(size < 2 or stride == step for size, stride, step in steps)


DAMAGED = "damaged "


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """A value that the observer only named: `kind` is Generator, Storage, Stream, Object …

    Of a value that lacks the form that its type promises, `kind` is `damaged` and the type.
    """

    kind: str

    @property
    def is_damaged(self) -> bool:
        """True for a value that lacks the form that its type promises."""
        return self.kind.startswith(DAMAGED)


Value = TensorRef | Opaque | None | bool | int | float | str | tuple["Value", ...]


def tensors(values: Iterable[Value]) -> Iterator[TensorRef]:
    """Yield every tensor of `values`, undefined ones too, in the observer's flattening order."""
    stack = [iter(values)]
    while stack:
        for value in stack[-1]:
            if isinstance(value, TensorRef):
                yield value
            elif isinstance(value, tuple):
                stack.append(iter(value))
                break
        else:
            stack.pop()


def damaged(values: Iterable[Value]) -> Iterator[Opaque]:
    """Yield every damaged value of `values`, in the observer's flattening order."""
    for value in values:
        if isinstance(value, tuple):
            yield from damaged(value)
        elif isinstance(value, Opaque) and value.is_damaged:
            yield value


_COLLECTIVES = (
    "c10d::",
    "_c10d_functional::",
    "_c10d_functional_autograd::",
    "c10d_functional::",
    "_dtensor::",
)


class Node(msgspec.Struct, frozen=True, gc=False):
    """One recorded call; what its schema lacks has a default, the unknown is in `attributes`."""

    id: int
    name: str
    parent: int
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    op_schema: str = ""
    tid: int = 0
    scope: int = 0
    rf_id: int = 0
    seq_id: int = -1
    fw_parent: int = 0
    fw_tid: int = 0
    kernel_backend: str = ""
    kernel_file: str = ""
    tensor_range: str = ""
    attributes: Mapping[str, object] = {}

    @property
    def is_kernel(self) -> bool:
        """True for a generated kernel (Triton) that a compiled graph launched."""
        return self.kernel_backend != ""

    @property
    def is_collective(self) -> bool:
        """True for a call of torch.distributed, in any of the forms in which traces hold it."""
        return self.name == "record_param_comms" or self.name.startswith(_COLLECTIVES)

    @property
    def is_operator(self) -> bool:
        """True for what a replay can execute: operators, collectives, generated kernels."""
        return self.op_schema != "" or self.is_kernel or self.name == "record_param_comms"

    @property
    def lacks_schema(self) -> bool:
        """True for what was surely an operator: without a schema the observer lists no results."""
        return bool(self.outputs) and not self.is_operator and self.name.startswith("aten::")


@dataclass(frozen=True, eq=False)
class ExecutionTrace:
    """A trace's nodes sorted by id, so in the order in which the calls began.

    A node's *position* is its index in that order and its identity: damaged files repeat ids.
    `parents` holds positions, -1 for a node without parent, and `places` where a node stands in the
    file: the observer writes a node when its call has ended. `notes` says in sentences what was
    repaired or left out on reading.
    """

    source: str
    schema: str
    ids: npt.NDArray[np.int64]
    parents: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    names: Sequence[str]
    decode: Callable[[int], Node]
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def node(self, position: int) -> Node:
        """Decode the node at `position`."""
        return self.decode(position)
