"""A program in, the memory that each operation takes for libraries and no node shows out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from et_replay.execution_trace import Node, TensorRef, Value, is_contiguous, tensors
from et_replay.program.nesting import nest
from et_replay.program.program import Program
from et_replay.program.reductions import MULTIPROCESSORS, reduction_buffer

CUBLAS_WORKSPACE = "cuBLAS workspace"

_CUBLAS_BYTES = 32 * 2**20
"""What PyTorch gives cuBLAS for each thread and stream on Hopper and later GPUs (getWorkspaceSize
in ATen/cuda/CublasHandlePool.cpp). Earlier ones get 8.1 MiB, but a trace does not tell the GPU."""

_CUBLASLT_BYTES = 2**20
"""Recorded once a job, right after the first workspace of cuBLAS (H200, torch 2.11)."""

_MATRIX_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot"),
        *("_addmm_activation", "_scaled_mm", "_int_mm"),
    )
)

_ALIGNED_ELEMENTS = 4
"""Rows of 49 elements (7x7) were converted, rows of 196 and more, multiples of 4, were not."""

_PARTS = 32
_PARTS_LIMIT = 32 * 2**20
"""1x1 filters of 16 KiB to 1 MiB took 32 times their size, those of 2 MiB other kernels."""

_TERMS_PER_PART = 1024
"""Fewer are not worth a part; recorded were parts of 1568 and more."""


@dataclass(frozen=True, slots=True)
class LibraryAllocation:
    """Memory for a library: `kept` for good from the operation on, or free again when it ends."""

    name: str
    size: int
    kept: bool


def library_allocations(program: Program) -> list[tuple[LibraryAllocation, ...]]:
    """List what each operation of `program` takes in order; nothing unless it runs on cuda.

    * cuBLAS keeps a workspace for each thread that multiplies, from its first product on.
    * cuDNN computes convolutions in NHWC: it converts NCHW tensors in a passing workspace, see
      `_conversion` and `_weight_gradient`.
    * PyTorch's own reductions across thread blocks meet in a passing buffer, see reductions.py.
    """
    found: list[list[LibraryAllocation]] = [[] for _ in program.operations]
    if program.device == "cuda":
        nesting = nest(program.trace, program.window)
        operation = {place: k for k, place in enumerate(nesting.top_level())}
        threads: set[int] = set()
        for node, outermost in zip(nesting.nodes, nesting.outermost, strict=True):
            if outermost >= 0:
                found[operation[outermost]] += _kept(node, threads)
                found[operation[outermost]] += _passing(node)
    return [tuple(each) for each in found]


def _kept(node: Node, threads: set[int]) -> Iterator[LibraryAllocation]:
    if node.name not in _MATRIX_PRODUCTS or node.tid in threads:
        return
    yield LibraryAllocation(CUBLAS_WORKSPACE, _CUBLAS_BYTES, kept=True)
    if not threads:
        yield LibraryAllocation("cuBLASLt workspace", _CUBLASLT_BYTES, kept=True)
    threads.add(node.tid)


def _passing(node: Node) -> Iterator[LibraryAllocation]:
    if node.name in _PASSING:
        name, sizes = _PASSING[node.name]
        for size in sizes(node):
            if size:
                yield LibraryAllocation(name, size, kept=False)


def _convolution(node: Node) -> Iterator[int]:
    """Yield the workspace of cudnn_convolution(input, weight, padding, stride, …)."""
    given, returned = list(tensors(node.inputs)), list(tensors(node.outputs))
    if len(given) >= 2 and returned:
        stride = node.inputs[3] if len(node.inputs) > 3 else None
        yield _conversion(given[0], given[1], returned[0], stride)


def _convolution_backward(node: Node) -> Iterator[int]:
    """Yield the workspaces of the gradients of the input and of the weight.

    Takes convolution_backward(grad_output, input, weight, bias_sizes, stride, …, output_mask).
    """
    given = list(tensors(node.inputs))
    if len(given) < 3:
        return
    gradient, image, weight = given[:3]
    stride = node.inputs[4] if len(node.inputs) > 4 else None
    wanted = node.inputs[-1] if isinstance(node.inputs[-1], tuple) else (True, True)
    size = _conversion(image, weight, gradient, stride)
    if wanted[:1] != (False,):
        yield size
    if wanted[1:2] != (False,):
        yield _weight_gradient(image, weight, gradient, size)


def _conversion(image: TensorRef, weight: TensorRef, result: TensorRef, stride: Value) -> int:
    """Return the bytes of what cuDNN converts to NHWC in its workspace: input, filter and output.

    A filter of 1x1 is the same in both layouts, and with stride 1 a product of matrices as it is,
    provided that the rows of H*W elements are aligned. Measured on an H200 (torch 2.11, ResNet-50
    in float): exact to 150 bytes for all 24 gradients of inputs that convert and for 20 of the 25
    forward convolutions; four of the others write their output as it is.
    """
    if image.device.startswith("cpu") or not _are_contiguous(image, result):
        return 0
    pointwise = math.prod(weight.shape[2:]) == 1
    strided = isinstance(stride, tuple) and any(step != 1 for step in stride)
    if pointwise and not strided and math.prod(image.shape[2:]) % _ALIGNED_ELEMENTS == 0:
        return 0
    converted = (image, result) if pointwise else (image, weight, result)
    return sum(_bytes(tensor) for tensor in converted)


def _weight_gradient(
    image: TensorRef, weight: TensorRef, gradient: TensorRef, conversion: int
) -> int:
    """Return the workspace of a weight gradient: the tensors in NHWC, and partial sums.

    The sum over all pixels is split among thread blocks, which each put down a filter, or tiles of
    one. Where nothing is converted there are 32 parts, up to 32 MiB. Else cuDNN splits so as to
    fill the GPU: as many times as the tiles of the filter go into the multiprocessors. Measured
    like `_conversion`: exact to 700 bytes for 48 of 53 gradients, the others up to 26 % off.
    """
    if image.device.startswith("cpu") or not _are_contiguous(image, gradient):
        return 0
    if not conversion and _PARTS * _bytes(weight) <= _PARTS_LIMIT:
        return _PARTS * _bytes(weight)
    rows = max(weight.shape[0], 1)
    tile = 64 if rows <= 64 else 128
    tiles = math.ceil(rows / tile) * math.ceil(weight.numel / rows / tile)
    parts = min(MULTIPROCESSORS // max(tiles, 1), gradient.numel // rows // _TERMS_PER_PART)
    partial_sums = parts * _bytes(weight) if parts > 1 else 0
    return (conversion or _bytes(image) + _bytes(gradient)) + partial_sums


def _reduction(node: Node) -> Iterator[int]:
    """Yield the buffer of a sum or mean over the leading dimensions of a contiguous tensor."""
    given, returned = list(tensors(node.inputs)), list(tensors(node.outputs))
    dims = node.inputs[1] if len(node.inputs) > 1 else None
    if len(given) != 1 or not returned or not isinstance(dims, tuple):
        return
    source, shape = given[0], given[0].shape
    leading = {dim % len(shape) for dim in dims if isinstance(dim, int)} if shape else set()
    on_cpu = source.device.startswith("cpu")
    if on_cpu or leading != set(range(len(dims))) or not _are_contiguous(source):
        return
    rows, outputs = math.prod(shape[: len(leading)]), math.prod(shape[len(leading) :])
    if leading and len(leading) < len(shape) and rows and outputs:
        wide = returned[0].dtype in ("double", "long int", "long")
        yield reduction_buffer(rows, outputs, 8 if wide else 4)


_PASSING: Mapping[str, tuple[str, Callable[[Node], Iterator[int]]]] = {
    "aten::cudnn_convolution": ("cuDNN workspace", _convolution),
    "aten::convolution_backward": ("cuDNN workspace", _convolution_backward),
    "aten::sum": ("reduction buffer", _reduction),
    "aten::mean": ("reduction buffer", _reduction),
}


def _bytes(tensor: TensorRef) -> int:
    return tensor.numel * tensor.itemsize


def _are_contiguous(*tensors: TensorRef) -> bool:
    return all(is_contiguous(tensor.shape, tensor.strides) for tensor in tensors)
