"""A program in, the memory that libraries take for it and no trace records out."""

from __future__ import annotations

from et_replay.program import Program

_CUBLAS_WORKSPACE = 32 * 2**20
"""What PyTorch gives cuBLAS for each thread and stream on Hopper and later GPUs. Earlier ones get
8.1 MiB, but a trace does not tell the GPU. It is taken at the first product and kept."""

_MATRIX_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot"),
        *("_addmm_activation", "_scaled_mm", "_int_mm"),
    )
)


def default_library_workspace(program: Program) -> int:
    """Return the bytes of library workspaces to expect: on cuda cuBLAS's, one a thread; else 0."""
    if program.device != "cuda":
        return 0
    trace, window = program.trace, program.window
    threads = {
        trace.node(position).tid
        for position in range(window.begin, window.end)
        if trace.names[position] in _MATRIX_PRODUCTS
    }
    return len(threads) * _CUBLAS_WORKSPACE
