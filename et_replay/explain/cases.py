"""A program in; what could be run instead of it, to fit into a device, out."""

from __future__ import annotations

from et_replay.explain.way_out import ALLOCATORS, Case
from et_replay.program import Mode, Program, history_of
from et_replay.simulation import PLANNED


def cases_of(program: Program) -> list[Case]:
    """List what could be run instead: each mode, the job's own under every allocator."""
    unplanned = tuple(name for name in ALLOCATORS if name != PLANNED)
    lazy = history_of(program, Mode.LAZY_ALLOCATE)
    return [
        Case(Mode.PRE_ALLOCATE.value, history_of(program, Mode.PRE_ALLOCATE), unplanned),
        Case(Mode.LAZY_ALLOCATE.value, lazy, ("native", "expandable")),
        Case(Mode.STALLOC_PLANNED.value, lazy, (PLANNED,)),
    ]
