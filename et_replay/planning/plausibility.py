"""A plan from a file in; the first thing in it that cannot be, as a sentence, out.

Planning makes no such plan: somebody changed the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from et_replay.errors import PlanError
from et_replay.planning.lifetimes import StorageClass
from et_replay.planning.plan import LEFT_OUT, Plan, fault_of, load_of
from et_replay.planning.run_plan import assemble, fault_of_run

_LARGEST = 2**62
_LIMITS = {
    "size": (0, _LARGEST // 2),
    "alignment": (1, _LARGEST // 2),
    "offset": (-1, _LARGEST),
    "storage_class": (0, max(StorageClass)),
}
_REPEATING = (StorageClass.CROSSING, StorageClass.UNMATCHED, StorageClass.VARYING)
_SCALAR_LIMITS = {
    "arena_bytes": (0, _LARGEST),
    "lower_bound_bytes": (0, _LARGEST),
    "planning_time_ns": (0, 2**63 - 1),
}


def implausibility_of(plan: Plan) -> str:
    """Say what cannot be, the first in a sentence; "" where everything can."""
    return next(_numbers_out_of_range(plan), "") or next(_contradictions(plan), "")


def _numbers_out_of_range(plan: Plan) -> Iterator[str]:
    for name, (least, most) in _LIMITS.items():
        column = plan.offset if name == "offset" else getattr(plan.lifetimes, name)
        wrong = np.flatnonzero((column < least) | (column > most))
        if len(wrong):
            row = int(wrong[0])
            yield (
                f"Expected {least} to {most} in row {row} of its column {name}, got {column[row]}."
            )
    scalars = {name: getattr(plan, name) for name in _SCALAR_LIMITS}
    for name, (least, most) in _SCALAR_LIMITS.items():
        if not least <= scalars[name] <= most:
            yield f"Expected {name} to be {least} to {most}, got {scalars[name]}."
    if plan.iteration is not None:
        begin, end = plan.iteration
        if not 0 <= begin < end <= _LARGEST:
            yield f"Expected an iteration that ends after it begins, got [{begin}, {end}]."


def _contradictions(plan: Plan) -> Iterator[str]:
    yield from _wrong_times(plan)
    if fault := fault_of(plan):
        yield fault
    lives = plan.lifetimes
    left_out = np.isin(lives.storage_class, LEFT_OUT)
    wrong = np.flatnonzero(plan.covered == left_out)
    if len(wrong):
        kind = StorageClass(lives.storage_class[wrong[0]]).name.lower()
        wanted = "no offset (-1)" if left_out[wrong[0]] else "an offset"
        yield (
            f"Expected {wanted} in row {wrong[0]}, a {kind} storage, got {plan.offset[wrong[0]]}."
        )
    yield from _wrong_figures(plan)
    yield from _wrong_repetition(plan)


def _wrong_repetition(plan: Plan) -> Iterator[str]:
    repetition = plan.repetition
    if repetition is None:
        return
    begins, begin = repetition.begins, (plan.iteration or (-1, -1))[0]
    if begins[:1] != (0,) or begins[-1:] != (begin,) or list(begins) != sorted(set(begins)):
        yield f"Expected iterations that begin from 0 up to tick {begin}, got {begins}."
    rows, period = len(plan.lifetimes), repetition.period
    if not 0 < period <= rows:
        yield f"Expected a period of 1 to {rows} requests, got {period}."
    for name, least, most in (
        ("twin", -1, rows - 1),
        ("start", -_LARGEST, period - 1),
        ("end", -_LARGEST, _LARGEST),
    ):
        column = getattr(repetition, name)
        wrong = np.flatnonzero((column < least) | (column > most))
        if len(wrong):
            row = int(wrong[0])
            yield (
                f"Expected {least} to {most} in row {row} of its column {name}, got {column[row]}."
            )
    itself = repetition.twin == np.arange(rows)
    twins = np.bincount(repetition.twin[repetition.twin >= 0], minlength=rows)
    long = np.flatnonzero(itself & plan.covered & (repetition.end > period * (twins + 1)))
    if len(long):
        row = int(long[0])
        yield f"Row {row} ends at request {repetition.end[row]}, later than any of it was recorded."
    if fault := fault_of_run(assemble(plan, repetition)):
        yield fault


def _wrong_times(plan: Plan) -> Iterator[str]:
    lives = plan.lifetimes
    _, first = np.unique(lives.storage, return_index=True)  # copies of one live in later iterations
    last = int(lives.end[first].max(initial=0))
    if not last <= lives.ticks < 2**63:
        yield f"Expected at least {last} ticks, as a storage lives that long, got {lives.ticks}."
    repeating = np.isin(lives.storage_class, _REPEATING)
    if plan.iteration is None and repeating.any():
        kind = StorageClass(lives.storage_class[repeating][0]).name.lower()
        yield f"Expected the ticks of an iteration, as there are {kind} storages, got null."


def _wrong_figures(plan: Plan) -> Iterator[str]:
    lives = plan.lifetimes
    rows = np.flatnonzero(plan.covered & (lives.size > 0) & (lives.start < lives.end))
    highest = int((plan.offset[rows] + lives.size[rows]).max(initial=0))
    unit = int(lives.alignment.max(initial=1))
    if not highest <= plan.arena_bytes <= -(-highest // unit) * unit:
        yield (
            f"Its arena is {plan.arena_bytes} bytes, expected {highest}, where the highest storage"
            " ends."
        )
    bound = _load(plan)
    if not bound <= plan.lower_bound_bytes <= plan.arena_bytes:
        yield (
            f"Its lower bound is {plan.lower_bound_bytes} bytes, expected {bound}, which live at"
            f" once, to {plan.arena_bytes}, its arena."
        )


def _load(plan: Plan) -> int:
    """Return the most that lives at once; more than any arena holds where it is too much."""
    try:
        return load_of(plan)
    except PlanError:
        return _LARGEST
