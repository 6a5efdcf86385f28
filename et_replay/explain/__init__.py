"""From an allocation history to reasons: what filled a device, why it failed, what would fit."""

from et_replay.explain.explanation import Explanation, LiveGroup, explain
from et_replay.explain.fit import Fit, find_fit
from et_replay.explain.fragmentation import ReservedBytes
from et_replay.explain.way_out import Case, Option, find_way_out

__all__ = [
    "Case",
    "Explanation",
    "Fit",
    "LiveGroup",
    "Option",
    "ReservedBytes",
    "explain",
    "find_fit",
    "find_way_out",
]
