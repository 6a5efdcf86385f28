"""What the entries of a tensor must be, and whether they are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

Interval = tuple[float | None, float | None]

_ANY: Interval = (None, None)


@dataclass(frozen=True, slots=True)
class Requirement:
    """Bounds of a tensor's entries, both inclusive, None where there is none.

    `likely` is a narrower range that made-up values are drawn from. With `even` these rise evenly
    through it, as offsets do. With `total` they fall and add up to it, as lengths do, the first
    being the upper bound where there is one; where there are several `rows`, in each of them. With
    `exact` they are these. Entries equal to `exempt` are valid wherever it lies. `matrix` is the
    size of square matrices that have to be positive definite, which a large diagonal makes them.
    """

    low: float | None = None
    high: float | None = None
    even: bool = False
    total: int | None = None
    likely: Interval | None = None
    exempt: float | None = None
    rows: int = 1
    exact: tuple[int, ...] = ()
    matrix: int = 0

    @property
    def drawn_from(self) -> Interval:
        """The range of made-up values: the likely one, as far as it is valid."""
        likely = _common((self.low, self.high), self.likely or _ANY)
        return (self.low, self.high) if likely is None else likely

    @property
    def is_arranged(self) -> bool:
        """Whether made-up values have an order."""
        return self.even or self.total is not None or bool(self.exact)

    @property
    def is_bounded(self) -> bool:
        """Whether values can be wrong: an operator fails at those out of bounds.

        On a GPU such a failure ends the process. What is merely unlikely fails nowhere.
        """
        return self.low is not None or self.high is not None

    def counts(self, tensor: torch.Tensor) -> bool:
        """Tell whether `tensor` is a mask that has to have `total` true entries."""
        return self.total is not None and tensor.dtype is torch.bool

    def __and__(self, other: Requirement | None) -> Requirement:
        """Return what satisfies both, or where nothing can, zeros: a valid index of any tensor."""
        if other is None or other == self:
            return self
        bounds = _common((self.low, self.high), (other.low, other.high))
        if bounds is None:
            return Requirement(0, 0)
        likely = _common(self.likely or _ANY, other.likely or _ANY)
        total = other.total if self.total is None else self.total
        return Requirement(
            *bounds,
            self.even or other.even,
            total,
            None if likely == _ANY else likely,
            self.exempt if self.exempt == other.exempt else None,
            max(self.rows, other.rows),
            self.exact or other.exact,
            self.matrix or other.matrix,
        )

    def admits(self, tensor: torch.Tensor) -> bool:
        """Tell whether all entries lie within the bounds; waits for the device.

        A mask has to have the right number of true entries.
        """
        if tensor.is_meta or tensor.numel() == 0:
            return True
        if self.counts(tensor):
            return int(tensor.count_nonzero()) == self.total
        if not self.is_bounded:
            return True
        if tensor.dtype.is_complex or tensor.dtype is torch.bool or tensor.is_quantized:
            return True
        if self.exempt is not None:
            tensor = tensor[tensor != self.exempt]
            if tensor.numel() == 0:
                return True
        wide = torch.float32 if tensor.dtype.is_floating_point else torch.int64
        least, greatest = (bound.item() for bound in tensor.to(wide).aminmax())
        return (self.low is None or least >= self.low) and (
            self.high is None or greatest <= self.high
        )


def _common(one: Interval, other: Interval) -> Interval | None:
    """Intersect two ranges; None if nothing lies in both."""
    lows = [bound for bound in (one[0], other[0]) if bound is not None]
    highs = [bound for bound in (one[1], other[1]) if bound is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    return None if low is not None and high is not None and low > high else (low, high)
