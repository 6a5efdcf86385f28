"""Who made a storage, and what it is for: the names that explanations of memory use."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class MemoryClass(enum.Enum):
    """What a storage is for; the values are what people read."""

    WEIGHT = "weights"
    INPUT = "other inputs"
    GRADIENT = "gradients"
    ACTIVATION = "activations"
    OPTIMIZER_STATE = "optimizer state"
    TEMPORARY = "temporaries"
    LIBRARY = "library workspaces"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who made a storage.

    `maker` is the operation, or of a snapshot the innermost frame that tells something. `within` is
    what encloses it, the outermost first: annotations, modules, operators or frames.
    """

    maker: str
    within: tuple[str, ...] = ()
    memory_class: MemoryClass = MemoryClass.UNKNOWN
