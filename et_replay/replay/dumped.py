"""The functions of a dump: dump.py copies the text of those that a file needs.

Only torch and the standard library may be used, and DEVICE and HOST, which a dump defines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

DEVICE = HOST = torch.device("cpu")


def uniform(
    count: int, dtype: torch.dtype, low: float, high: float, seed: int, device: Any = None
) -> torch.Tensor:
    """Make a vector of random numbers, the same ones for the same seed."""
    device = DEVICE if device is None else device
    generator = torch.Generator(device).manual_seed(seed)
    made = torch.empty(count, dtype=dtype, device=device)
    filled = torch.view_as_real(made) if dtype.is_complex else made
    if filled.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        filled.uniform_(low, high, generator=generator)
    else:  # a type that has no random numbers of its own
        wide = torch.empty(filled.shape, dtype=torch.float32, device=device)
        filled.copy_(wide.uniform_(low, high, generator=generator))
    return made


def integers(
    count: int, dtype: torch.dtype, low: int, high: int, seed: int, device: Any = None
) -> torch.Tensor:
    """Make a vector of random integers from `low` to `high`, the same ones for the same seed."""
    device = DEVICE if device is None else device
    generator = torch.Generator(device).manual_seed(seed)
    kernels = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
    drawn = dtype if dtype in kernels else torch.int64
    made = torch.empty(count, dtype=drawn, device=device)
    return made.random_(low, high + 1, generator=generator).to(dtype)


def zeros(count: int, dtype: torch.dtype, device: Any = None) -> torch.Tensor:
    """Make a vector of zero bytes: not every type has zeros of its own."""
    device = DEVICE if device is None else device
    return torch.zeros(count * dtype.itemsize, dtype=torch.uint8, device=device).view(dtype)


def empty(count: int, dtype: torch.dtype, device: Any = None) -> torch.Tensor:
    """Make a vector that is written to before it is read."""
    return torch.empty(count, dtype=dtype, device=DEVICE if device is None else device)


def repeated(
    runs: Sequence[tuple[float, int]], dtype: torch.dtype, device: Any = None
) -> torch.Tensor:
    """Make a vector of values, each given with how often it follows itself."""
    values, counts = zip(*runs, strict=True)
    made = torch.tensor(values).repeat_interleave(torch.tensor(counts))
    return made.to(device=DEVICE if device is None else device, dtype=dtype)


def rising(
    count: int, dtype: torch.dtype, start: float, stop: float, device: Any = None
) -> torch.Tensor:
    """Make a vector that rises evenly."""
    steps = torch.arange(count, dtype=torch.float64) / max(count - 1, 1)
    made = steps.mul_(stop - start).add_(start)
    return made.to(device=DEVICE if device is None else device, dtype=dtype)


def view(
    base: torch.Tensor,
    dtype: torch.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
) -> torch.Tensor:
    """Make another tensor on the storage of `base`."""
    made = torch.empty(0, dtype=dtype, device=base.device)
    return made.set_(base.untyped_storage(), offset, tuple(shape), tuple(strides))


def hold(tensor: torch.Tensor, low: float | None, high: float | None) -> None:
    """Bring entries within the bounds that an operator demands of them."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    if tensor.dtype.is_floating_point:
        tensor.nan_to_num_()
    tensor.clamp_(low, high)


def choose(mask: torch.Tensor, count: int) -> None:
    """Make as many entries of a mask true as the job had, in different rows where that goes."""
    width = mask.shape[-1] if mask.dim() > 1 else 1
    step = width if count * width <= mask.numel() else 1
    dense = torch.zeros(mask.shape, dtype=torch.bool, device=mask.device)
    dense.as_strided((min(count, mask.numel()),), (step,)).fill_(True)
    mask.copy_(dense)


def shaped(result: Any, shapes: Sequence[Sequence[int] | None]) -> list[Any]:
    """Give results whose shapes depend on values the recorded ones, by repeating entries."""
    mended = []
    for tensor, shape in zip(flat(result), shapes, strict=False):
        if tensor is None or shape is None or tuple(tensor.shape) == tuple(shape):
            mended.append(tensor)
        elif 0 in tensor.shape or tensor.dim() != len(shape):
            mended.append(tensor.new_zeros(shape))
        else:
            for dimension, size in enumerate(shape):
                index = torch.arange(size, device=tensor.device) % tensor.shape[dimension]
                tensor = tensor.index_select(dimension, index)
            mended.append(tensor)
    return mended


def flat(result: Any) -> list[Any]:
    """List the tensors of nested results in order, None for an undefined one."""
    if isinstance(result, (tuple, list)):
        return [leaf for entry in result for leaf in flat(entry)]
    return [result] if result is None or isinstance(result, torch.Tensor) else []


def measure(
    inputs: Callable[[], list[torch.Tensor]], iteration: Callable[[list[torch.Tensor]], Any]
) -> None:
    """Run one iteration to warm up, then three, and print their times and the peak memory."""
    on_cuda = DEVICE.type == "cuda"
    tensors, results = inputs(), None
    for number in range(4):
        if on_cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        results = iteration(tensors)
        if on_cuda:
            torch.cuda.synchronize()
        print(f"iteration {number}: {1000 * (time.perf_counter() - start):.3f} ms")
    if on_cuda:
        print(f"peak memory: {torch.cuda.max_memory_allocated()} bytes allocated")
    for result in results or ():
        print(f"result: {result.dtype}, {tuple(result.shape)}")
