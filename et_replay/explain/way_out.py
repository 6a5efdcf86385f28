"""Histories and a capacity in; which allocators, settings and modes would fit, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from et_replay.errors import PlanError, TraceError
from et_replay.events import MemoryHistory
from et_replay.explain.fit import Fit, find_fit, serve, with_failures_served
from et_replay.program import Mode
from et_replay.serving import plan_for, versions_with
from et_replay.simulation import PLANNED

ALLOCATORS = (
    "native",
    "expandable",
    "native:max_split_size_mb:20",
    "native:max_split_size_mb:128",
    "native:max_split_size_mb:512",
    "native:garbage_collection_threshold:0.8",
    "native:roundup_power2_divisions:4",
    PLANNED,
    "ideal",
)
"""A small sensible set: each is what maintainers and reports advise for some cause.

max_split_size_mb is at least 20 in torch, and more before 2.10; it keeps large blocks from being
split, so that small requests do not pin them. roundup_power2_divisions lets requests of nearly the
same size share blocks. `ideal` is the lower bound: what lives at once.
"""
_LEAST_SPLIT = "native:max_split_size_mb:20"
_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


def as_taken(allocator: str, torch_version: str | None) -> str:
    """Return one of ALLOCATORS as a version takes it."""
    if allocator != _LEAST_SPLIT or torch_version is None:
        return allocator
    known = torch_version in versions_with(_LEAST_SPLIT.partition(":")[2])
    return allocator if known else "native:max_split_size_mb:21"


@dataclass(frozen=True)
class Case:
    """A history, and the mode of replay that has these lifetimes ("" for recorded ones)."""

    mode: str
    history: MemoryHistory
    allocators: Sequence[str] = ALLOCATORS


@dataclass(frozen=True)
class Option:
    """What one allocator needs for one case, and whether `capacity` bytes serve it.

    `retries` says how often the cache is given back on the way there.
    """

    mode: str
    fit: Fit
    capacity: int
    fits: bool
    retries: int

    @property
    def room(self) -> int:
        """Negative where bytes are lacking."""
        return self.capacity - self.fit.least


def find_way_out(
    cases: Sequence[Case], capacity: int, torch_version: str | None = None
) -> list[Option]:
    """Fit every case with each of its allocators; what no device has the memory for is left out.

    First come those that fit, then those that fit with retries; among each the roomiest.
    """
    options = []
    for case in cases:
        served = replace(case, history=with_failures_served(case.history))
        names = [as_taken(name, torch_version) for name in case.allocators]
        options += [_option(served, name, capacity, torch_version) for name in names]
    return sorted((option for option in options if option is not None), key=_rank)


def _option(case: Case, allocator: str, capacity: int, torch_version: str | None) -> Option | None:
    history = case.history
    try:
        plan = plan_for(history, allocator)
        fit = find_fit(history, allocator, torch_version=torch_version, plan=plan)
    except (TraceError, PlanError):  # more than any device has, or than can be planned
        return None
    served = None
    if not fit.undefined:
        served = serve(history, allocator, capacity, torch_version=torch_version, plan=plan)
    retries = 0 if served is None else served.statistics().alloc_retries
    return Option(case.mode, fit, capacity, served is not None, retries)


def _rank(option: Option) -> tuple[bool, bool, bool, int]:
    fit = option.fit
    return not option.fits, fit.undefined != "", option.retries > 0, fit.least


def how_to_set(allocator: str, mode: str) -> str:
    """Say what to type: an environment variable for the job, or flags for a replay in a mode.

    PRE_ALLOCATE is the memory of the job itself.
    """
    name, _, settings = allocator.partition(":")
    if name == "ideal":
        return "the lower bound: no allocator needs less"
    if name == PLANNED:
        return f"--tensor-allocation-mode {mode}" if mode else "a planned arena: et_replay plan"
    if mode == Mode.LAZY_ALLOCATE.value:
        return f"--tensor-allocation-mode {mode} --allocator {allocator}"
    if name == "expandable":
        settings = ",".join(filter(None, ["expandable_segments:True", settings]))
    return f"{_VARIABLE}={settings}" if settings else "PyTorch's default"
