"""What a tensor must hold in, values for it where the recorded ones are not known out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import torch

from et_replay.replay.requirement import Requirement as Requirement
from et_replay.replay.rules import requirements as requirements

# Float types with a random kernel on every device; the others are filled through float32.
_RANDOM_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_TINY = 2**-6  # The smallest normal number of float8_e4m3fn.
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

Filler = Callable[[torch.Tensor], object]
"""Fills a tensor in place."""


def fill(tensor: torch.Tensor, requirement: Requirement | None, seed: int) -> None:
    """Fill `tensor` in place with valid values that depend on its shape, its type and `seed` only.

    Integers without a requirement become 0, which indexes every tensor that has elements. Floats
    are positive, and so small that a product with a weight matrix keeps the mean: uniform up to
    2 / fan-in. Types without arithmetic (bits, sub-byte) become zero bytes; meta stays as it is.
    """
    view = _without_repeats(tensor)
    filler(view.dtype, view.device, tuple(view.shape), requirement, seed)(view)


def filler(
    dtype: torch.dtype,
    device: torch.device,
    shape: tuple[int, ...],
    requirement: Requirement | None,
    seed: int,
) -> Filler:
    """Decide all that `fill` decides, ahead; what comes out only fills.

    It fills tensors laid out otherwise than `shape` too, in their own order.
    """
    draw = _filler(dtype, device, shape, requirement, seed)
    if requirement is None or not requirement.matrix or draw is _leave:
        return draw
    return partial(_with_large_diagonal, draw, requirement.matrix)


def _with_large_diagonal(draw: Filler, size: int, tensor: torch.Tensor) -> None:
    """Make the square matrices that lie dense in `tensor` positive definite.

    Each entry of the diagonal is larger than the sum of its row, whose entries are below 1.
    """
    draw(tensor)
    if tensor.is_contiguous() and tensor.numel() % (size * size) == 0:
        tensor.view(-1, size * size)[:, :: size + 1] += size


def _filler(
    dtype: torch.dtype,
    device: torch.device,
    shape: tuple[int, ...],
    requirement: Requirement | None,
    seed: int,
) -> Filler:
    if device.type == "meta" or 0 in shape:
        return _leave
    if requirement is not None and requirement.is_arranged:
        return partial(_arrange, requirement)
    if dtype.is_complex:
        parts = _uniform(dtype.to_real(), device, (*shape, 2), requirement, seed)
        return lambda tensor: parts(torch.view_as_real(tensor))
    if dtype.is_floating_point:
        return _uniform(dtype, device, shape, requirement, seed)
    if dtype is torch.bool:
        low, high = (0, 1) if requirement is None else integers_of(requirement, torch.uint8)
        return _integers(dtype, device, min(low, 1), min(high, 1), seed)
    if requirement is None or requirement.drawn_from == (None, None):
        return torch.Tensor.zero_ if dtype in INTEGERS else _zero
    return _integers(dtype, device, *integers_of(requirement, dtype), seed)


def enforce(tensor: torch.Tensor, requirement: Requirement) -> None:
    """Bring the entries within the bounds, in place; what is no number becomes 0.

    A mask of which a number of true entries is required gets these, and no others.
    """
    view = _without_repeats(tensor)
    if view.dtype.is_complex:
        return  # They have no order.
    if requirement.total is not None and requirement.counts(tensor):
        set_true(view, requirement.total * view.numel() // max(tensor.numel(), 1))
        return
    if view.dtype.is_floating_point:
        view.nan_to_num_()
    if requirement.exempt is None:
        view.clamp_(requirement.low, requirement.high)
    else:
        bounded = view.clamp(requirement.low, requirement.high)
        view.copy_(torch.where(view == requirement.exempt, view, bounded))


def set_true(mask: torch.Tensor, count: int) -> None:
    """Make `count` entries of `mask` true, all others false, without waiting for the device.

    Where there are as many rows (of the last dimension) as that, no two lie in one: the rows that
    are then written to are distinct, as they are where each token of a row chooses among experts.
    """
    if not mask.is_contiguous():
        dense = torch.empty(mask.shape, dtype=torch.bool, device=mask.device)
        set_true(dense, count)
        mask.copy_(dense)
        return
    width = mask.shape[-1] if mask.dim() > 1 else 1
    step = width if count * width <= mask.numel() else 1
    mask.zero_().as_strided((min(count, mask.numel()),), (step,)).fill_(True)


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Drop expanded dimensions: torch refuses to write to entries that share memory."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


@cache
def _generator_of(device: torch.device) -> torch.Generator:
    """Return the one generator of a device: to make one takes longer than to fill a tensor."""
    return torch.Generator(device)


def _leave(tensor: torch.Tensor) -> None:
    pass


def _uniform(
    dtype: torch.dtype,
    device: torch.device,
    shape: tuple[int, ...],
    requirement: Requirement | None,
    seed: int,
) -> Filler:
    low, high = floats_of(dtype, shape, requirement)
    generator = _generator_of(device)

    def draw(tensor: torch.Tensor) -> None:
        tensor.uniform_(low, high, generator=generator.manual_seed(seed))

    return draw if dtype in _RANDOM_FLOATS else partial(_through, torch.float32, draw)


def floats_of(
    dtype: torch.dtype, shape: tuple[int, ...], requirement: Requirement | None
) -> tuple[float, float]:
    if requirement is None:
        fan_in = math.prod(shape[1:]) if len(shape) >= 2 else 2
        smallest = torch.finfo(dtype).tiny if dtype in _RANDOM_FLOATS else _TINY
        return 0.0, max(2.0 / fan_in, 16 * smallest)  # Denormals would change the timing.
    low, high = requirement.drawn_from
    if low is None:
        low = 0.0 if high is None or high > 0 else high - 1.0
    return low, low + 1.0 if high is None else high


def _integers(dtype: torch.dtype, device: torch.device, low: int, high: int, seed: int) -> Filler:
    """Draw integers from `low` to `high`, both inclusive."""
    generator = _generator_of(device)

    def draw(tensor: torch.Tensor) -> None:
        tensor.random_(low, high + 1, generator=generator.manual_seed(seed))

    has_kernel = dtype in INTEGERS or dtype is torch.bool
    return draw if has_kernel else partial(_through, torch.int64, draw)


def _through(wide: torch.dtype, draw: Filler, tensor: torch.Tensor) -> None:
    """Draw in a type that has a kernel for it, then convert."""
    values = torch.empty(tensor.shape, dtype=wide, device=tensor.device)
    draw(values)
    _assign(tensor, values)


def integers_of(requirement: Requirement, dtype: torch.dtype) -> tuple[int, int]:
    """Bounds that the type can hold; an open side ends at 0, or at the other bound."""
    low, high = requirement.drawn_from
    low = min(0, high or 0) if low is None else low
    high = max(0, low) if high is None else high
    try:
        limits = torch.iinfo(dtype)
    except TypeError:
        return 0, 1
    largest = min(limits.max, 2**62)
    least, greatest = math.ceil(low), math.floor(high)
    return min(max(least, limits.min), largest), min(max(greatest, limits.min), largest)


def arranged(count: int, requirement: Requirement) -> torch.Tensor:
    """Values in an order: rising evenly through the range, falling with a given sum, or given."""
    if requirement.rows > 1 and count % requirement.rows == 0:
        row = arranged(count // requirement.rows, replace(requirement, rows=1))
        return row.repeat(requirement.rows)
    if requirement.exact:
        given = torch.tensor(requirement.exact)
        return given[torch.arange(count).clamp(max=len(given) - 1)]
    low, high = requirement.drawn_from
    if requirement.total is None:
        start, stop = low or 0.0, high if high is not None else low or 0.0
        steps = torch.arange(count, dtype=torch.float64) / max(count - 1, 1)
        return steps.mul_(stop - start).add_(start)
    total = requirement.total
    if high is None or count == 1:
        return _shares(total, count)
    first = min(math.floor(high), total)
    return torch.cat([torch.tensor([first]), _shares(total - first, count - 1)])


def _arrange(requirement: Requirement, tensor: torch.Tensor) -> None:
    _assign(tensor, arranged(tensor.numel(), requirement).reshape(tensor.shape))


def _shares(total: int, count: int) -> torch.Tensor:
    """Divide `total` into `count` integers that differ by 1 at most, the larger ones first."""
    share, larger = divmod(total, count)
    return torch.full((count,), share).add_(torch.arange(count) < larger)


def _assign(view: torch.Tensor, values: torch.Tensor) -> None:
    """Copy with conversion where the type has one, else set zero bytes."""
    try:
        view.copy_(values)
    except (RuntimeError, NotImplementedError):
        _zero(view)


def _zero(view: torch.Tensor) -> None:
    """Set zero bytes under every entry: bits and sub-byte types have no kernel for zeros."""
    size = view.element_size()
    shape, stride = (*view.shape, size), (*(step * size for step in view.stride()), 1)
    raw = torch.empty(0, dtype=torch.uint8, device=view.device)
    raw.set_(view.untyped_storage(), view.storage_offset() * size, shape, stride).zero_()
