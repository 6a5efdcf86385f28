"""Bounds that one argument of an operator sets for another's entries: the rules' vocabulary."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from et_replay.execution_trace import TensorRef, Value, tensors
from et_replay.replay.operators import has_mask
from et_replay.replay.requirement import Requirement


class Arguments:
    """The recorded arguments of one node by name; an absent size is 1, an absent integer 0."""

    def __init__(self, values: Mapping[str, Value], outputs: Sequence[TensorRef]) -> None:
        self.values = values
        self.outputs = outputs

    def shape(self, name: str) -> tuple[int, ...]:
        value = self.values.get(name)
        return value.shape if isinstance(value, TensorRef) else ()

    def size(self, name: str, dimension: int) -> int:
        return _at(self.shape(name), dimension, 1)

    def rows(self) -> int:
        """Size of the first result's first dimension."""
        return _at(self.outputs[0].shape, 0, 1) if self.outputs else 1

    def numel(self, name: str) -> int:
        return math.prod(self.shape(name))

    def integer(self, name: str) -> int:
        value = self.values.get(name)
        return value if isinstance(value, int) else 0


def _at(shape: Sequence[int], dimension: int, otherwise: int) -> int:
    return shape[dimension] if -len(shape) <= dimension < len(shape) else otherwise


_FLOATS = ("float", "double", "c10::Half", "c10::BFloat16")
_FRACTIONAL = re.compile(r"float|double|c10::(Half|BFloat16|Float\w+|complex<.*>)")

Bound = Requirement | list[Requirement | None] | None
Bounder = Callable[[Arguments], Bound]


def below(size: int) -> Requirement:
    return Requirement(0, max(size - 1, 0))


def within(low: float, high: float) -> Bounder:
    return lambda call: Requirement(low, high)


def divisor(call: Arguments) -> Bound:
    """An integer by which a host cannot divide if it is 0, where the result is one as well.

    What has fractions may be anything.
    """
    other = call.values.get("other")
    if isinstance(other, TensorRef) and _FRACTIONAL.fullmatch(other.dtype):
        return None
    whole = not any(_FRACTIONAL.fullmatch(output.dtype) for output in call.outputs)
    return Requirement(1 if whole else None, likely=(1, 8))


def positive_definite(name: str) -> Bounder:
    return lambda call: Requirement(matrix=call.size(name, -1))


def likely(low: float, high: float) -> Bounder:
    """What values are like, where others are valid too."""
    return lambda call: Requirement(likely=(low, high))


def indexes(name: str, dimension: int) -> Bounder:
    return lambda call: below(call.size(name, dimension))


def up_to(name: str, dimension: int) -> Bounder:
    """From 1 to a size, as pivots and labels beside a blank count."""
    return lambda call: Requirement(1, max(call.size(name, dimension), 1))


def equals(name: str, dimension: int) -> Bounder:
    return lambda call: Requirement(call.size(name, dimension), call.size(name, dimension))


def below_argument(name: str) -> Bounder:
    return lambda call: below(call.integer(name))


def indexes_flat(name: str, dimensions: int = 0) -> Bounder:
    """An index into the last `dimensions` dimensions laid flat, 0 meaning all."""
    return lambda call: below(math.prod(call.shape(name)[-dimensions:]))


def indexes_dim(call: Arguments) -> Bound:
    """An index along `dim` of `self`, which is laid flat where there is no `dim`."""
    if call.values.get("dim") is None:
        return below(call.numel("self"))
    return below(call.size("self", call.integer("dim")))


def indexes_dim_of(name: str) -> Bounder:
    """An index along `dim` of a tensor of which only the sizes are an argument."""

    def bound(call: Arguments) -> Bound:
        sizes = call.values.get(name)
        if not isinstance(sizes, tuple):
            return None
        return below(_at([s if isinstance(s, int) else 1 for s in sizes], call.integer("dim"), 1))

    return bound


def indexes_each(call: Arguments) -> Bound:
    """Each index of a list by its dimension; a mask has no bound, but as many places as rows."""
    listed, dimension = call.values.get("indices"), 0
    indices = listed if isinstance(listed, tuple) else ()
    found: list[Requirement | None] = []
    for index in indices:
        if isinstance(index, TensorRef) and has_mask((index,)):
            found.append(_places(call, indices))
            dimension += len(index.shape)
            continue
        if isinstance(index, TensorRef):
            found.append(below(call.size("self", dimension)) if index.defined else None)
        dimension += 1
    return found


def _places(call: Arguments, indices: tuple[Value, ...]) -> Requirement | None:
    """What a mask that is the only index must hold, for a result of the recorded shape."""
    places = [
        p for p, index in enumerate(indices) if isinstance(index, TensorRef) and index.defined
    ]
    if len(places) > 1 or "values" in call.values or not call.outputs:
        return None
    return Requirement(likely=(0, 1), total=_at(call.outputs[0].shape, places[0], 1))


def classes(call: Arguments) -> Bound:
    target = call.values.get("target")
    if isinstance(target, TensorRef) and target.dtype in _FLOATS:
        return None  # Probabilities of the classes.
    count = call.size("self", 1 if len(call.shape("self")) > 1 else 0)
    ignored = call.integer("ignore_index") if "ignore_index" in call.values else None
    return replace(below(count), exempt=ignored)


def result_classes(call: Arguments) -> Bound:
    return below(_at(call.outputs[0].shape, -1, 1) if call.outputs else 1)


def result_plane(call: Arguments) -> Bound:
    return below(math.prod(call.outputs[0].shape[2:]) if call.outputs else 1)


def result_rows(call: Arguments) -> Bound:
    return below(call.rows())


def true_for_each_row(call: Arguments) -> Bound:
    return Requirement(likely=(0, 1), total=call.rows())


def true_for_each_row_if_alone(call: Arguments) -> Bound:
    """A condition without alternatives to choose from: its true places are the result."""
    return true_for_each_row(call) if call.values.keys() == {"condition"} else None


def places_for_source(call: Arguments) -> Bound:
    """As many places of a mask as `source` has entries for."""
    total = min(call.numel("source") // _mask_repeats(call), call.numel("mask"))
    return Requirement(likely=(0, 1), total=total)


def places_for_result(call: Arguments) -> Bound:
    """As many places of a mask as the result has entries for."""
    return Requirement(likely=(0, 1), total=call.rows() // _mask_repeats(call))


def _mask_repeats(call: Arguments) -> int:
    """Count how often a mask is repeated over `self`."""
    return max(call.numel("self") // max(call.numel("mask"), 1), 1)


def sections(call: Arguments) -> Bound:
    """The number of pieces that were recorded, or where they begin."""
    if call.shape("tensor_indices_or_sections") == ():
        return Requirement(len(call.outputs), len(call.outputs))
    dimension = call.integer("dim")
    ends = accumulate(_at(piece.shape, dimension, 0) for piece in call.outputs)
    return Requirement(0, call.size("self", dimension), exact=tuple(ends)[:-1])


def segments(call: Arguments) -> Bound:
    """Lengths along the dimension of `data` that comes after those that both have in common."""
    dimension = len(call.shape("lengths")) - 1
    rows = math.prod(call.shape("lengths")[:-1])
    return Requirement(0, total=call.size("data", dimension), rows=rows)


def bags(call: Arguments) -> Bound:
    """Where each bag begins, and with include_last_offset where the last one ends."""
    count, total = call.size("offsets", 0), call.numel("indices")
    last = total if call.values.get("include_last_offset") else total * (count - 1) // max(count, 1)
    return Requirement(0, max(last, 0), even=True)


def bag_numbers(call: Arguments) -> Bound:
    """The bag of each index; a bag has a row in `grad`."""
    return replace(below(call.size("grad", 0)), even=True)


def boundaries(name: str, dimension: int) -> Bounder:
    return lambda call: Requirement(0, call.size(name, dimension), even=True)


def order(name: str) -> Bounder:
    return lambda call: Requirement(0, max(call.size(name, -1) - 1, 0), even=True)


def group_ends(call: Arguments) -> Bound:
    """Ends of groups along the dimension of a grouped product's two-dimensional factor."""
    factor, dimension = ("self", -2) if len(call.shape("self")) == 2 else ("mat2", -1)
    total = call.size(factor, dimension)
    return Requirement(total // max(call.size("offs", 0), 1), total, even=True)


def repeats(call: Arguments) -> Bound:
    if call.numel("repeats") == 1:
        count = call.rows() // max(call.size("self", call.integer("dim")), 1)
        return Requirement(count, count)
    total = _at(call.outputs[0].shape, call.integer("dim"), 0) if call.outputs else 0
    return Requirement(0, total=total)


def sequence_lengths(call: Arguments) -> Bound:
    steps = call.size("input", 1 if call.values.get("batch_first") else 0)
    return Requirement(1, steps, total=call.rows())


def batch_sizes(call: Arguments) -> Bound:
    """Sequences still running at each step: all at the first, the rows of `data` in all."""
    hidden = next(tensors((call.values.get("hx"),)), None)
    if hidden is not None:
        return Requirement(1, _at(hidden.shape, -2, 1), total=call.size("data", 0))
    batch = _at(call.outputs[0].shape, 0 if call.values.get("batch_first") else 1, 1)
    return Requirement(1, batch, total=call.size("data", 0))


def target_lengths(call: Arguments) -> Bound:
    targets, count = call.shape("targets"), max(call.numel("target_lengths"), 1)
    length = targets[1] if len(targets) > 1 else math.prod(targets) // count
    return Requirement(length, length)


def blanked_classes(call: Arguments) -> Bound:
    """Labels of a connectionist loss, whose class 0 is the blank."""
    return Requirement(1, max(call.size("log_probs", -1) - 1, 1))


def rising(low: float, high: float) -> Bounder:
    return lambda call: Requirement(likely=(low, high), even=True)


def positive(call: Arguments) -> Bound:
    """Weights: none negative, and not all of them zero."""
    return Requirement(0, likely=(0.5, 1))
