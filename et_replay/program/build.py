"""A trace and a window in, its Program out."""

from __future__ import annotations

from collections.abc import Callable

from et_replay.errors import TraceError
from et_replay.execution_trace import ExecutionTrace, tensors
from et_replay.program.calls import CallChooser
from et_replay.program.collectives import hold_buffers
from et_replay.program.damage import damage_notes
from et_replay.program.generations import Generations, trace_generations
from et_replay.program.nesting import nest
from et_replay.program.overwrites import find_overwrites
from et_replay.program.program import Operation, Program, device_kind
from et_replay.program.sightings import identity
from et_replay.program.window import Window, select_window


def build_program(trace: ExecutionTrace, window: Window | None = None) -> Program:
    """Understand `window` of `trace`, by default the last one that holds an operator."""
    window = window or select_window(trace)
    nesting = nest(trace, window)
    generations = trace_generations(
        nesting, _known_before(trace, window), find_overwrites(trace, window)
    )
    chooser = CallChooser(nesting, generations)
    operations = [Operation(*chooser.choose(i)) for i in nesting.top_level()]
    hold_buffers(operations, nesting, generations)
    return Program(
        trace=trace,
        window=window,
        operations=operations,
        tensors=generations.tensors,
        storages=generations.storages,
        device=_device(generations),
        notes=(*damage_notes(nesting.nodes), *_notes(generations)),
    )


def check_operations(program: Program) -> None:
    """Raise TraceError if there is nothing to replay."""
    if not program.operations:
        raise TraceError(
            f"{program.trace.source} holds no operator in window {program.window.name}, so there is"
            " nothing to replay; et_replay info lists its windows."
        )


def _known_before(trace: ExecutionTrace, window: Window) -> Callable[[int], bool]:
    """Make the test for storages seen before the window; looks only when it is first asked."""
    seen: set[int] = set()
    looked = False

    def known(key: int) -> bool:
        nonlocal looked
        if not looked:
            looked = True
            for position in range(window.begin):
                node = trace.node(position)
                seen.update(identity(ref) for ref in tensors((*node.inputs, *node.outputs)))
        return key in seen

    return known


def _device(generations: Generations) -> str:
    """Pick the device that matters: the accelerator with the most bytes, else the CPU."""
    total: dict[str, int] = {}
    for storage in generations.storages:
        kind = device_kind(storage.device)
        if kind not in ("", "cpu", "meta"):
            total[kind] = total.get(kind, 0) + storage.size
    return max(total, key=lambda kind: total[kind]) if total else "cpu"


def _notes(generations: Generations) -> tuple[str, ...]:
    accelerators = sorted(
        {
            storage.device
            for storage in generations.storages
            if device_kind(storage.device) not in ("", "cpu", "meta")
        }
    )
    notes = []
    if len(accelerators) > 1:
        notes.append(
            f"The trace uses {len(accelerators)} accelerators ({', '.join(accelerators)});"
            " all of them are mapped to one device, whose memory holds the sum."
        )
    estimated = sum(storage.estimated for storage in generations.storages)
    if estimated:
        notes.append(
            f"{estimated} of {len(generations.storages)} storages have estimated sizes:"
            " the trace has no strides that fit their shapes, as schemas before 1.1.1 have none."
        )
    return tuple(notes)
