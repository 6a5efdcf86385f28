"""A program in, the memory that libraries take for it and no trace records out."""

from __future__ import annotations

from et_replay.program import Program
from et_replay.program.libraries import CUBLAS_WORKSPACE, library_allocations


def default_library_workspace(program: Program) -> int:
    """Return the bytes of library workspaces to expect: on cuda cuBLAS's, one a thread; else 0."""
    return sum(
        each.size
        for allocations in library_allocations(program)
        for each in allocations
        if each.name == CUBLAS_WORKSPACE
    )
