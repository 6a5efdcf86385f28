"""A program in, the allocation events of the job that it was recorded from out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from et_replay.events import Action, AllocationEvents
from et_replay.origins import MemoryClass, Origin
from et_replay.program.allocations import EventRows
from et_replay.program.classes import classify
from et_replay.program.libraries import LibraryAllocation, library_allocations
from et_replay.program.program import Program, StorageKind
from et_replay.program.schedule import Mode, schedule
from et_replay.program.surroundings import enclosing_annotations


def job_events(program: Program, iterations: int) -> AllocationEvents:
    """List the events of a job's first `iterations` iterations, from an empty allocator on.

    Inputs come before `steps[0]`, but the optimizer's state right before the first operation that
    uses it: optimizers make it in their first step. Memory of libraries has the storage numbers
    from `len(program.storages)` on, in the order of `library_allocations`. `steps` covers the
    operations of all iterations.
    """
    steps = schedule(program, Mode.PRE_ALLOCATE)
    libraries = library_allocations(program)
    states = _optimizer_states(program)
    made_later = set(states)
    rows = EventRows(program, (each.size for each in chain.from_iterable(libraries)))
    for index, storage in enumerate(program.storages):
        given = storage.kind is StorageKind.INPUT and program.on_device(storage)
        if given and index not in made_later:
            rows.add(Action.ALLOC, index, -1)
    first = min((program.storages[s].first_operation for s in states), default=-1)
    for iteration in range(iterations):
        number = len(program.storages)
        for k, (operation, step) in enumerate(zip(program.operations, steps, strict=True)):
            rows.begin_step()
            for index in states if (iteration, k) == (0, first) else ():
                rows.add(Action.ALLOC, index, operation.node.id)
            rows.add_births(operation, step)
            _add_libraries(rows, libraries[k], number, operation.node.id, iteration == 0)
            rows.add_deaths(step)
            number += len(libraries[k])
    return rows.events()


def library_origins(program: Program) -> dict[int, Origin]:
    """Name the libraries' memory by the storage numbers that `job_events` gives it."""
    found: dict[int, Origin] = {}
    number = len(program.storages)
    annotations = enclosing_annotations(program)
    for k, allocations in enumerate(library_allocations(program)):
        within = (*annotations[k], program.operations[k].node.name)
        for each in allocations:
            found[number] = Origin(each.name, within, MemoryClass.LIBRARY)
            number += 1
    return found


def _add_libraries(
    rows: EventRows,
    allocations: Sequence[LibraryAllocation],
    number: int,
    node_id: int,
    first_time: bool,
) -> None:
    for storage, allocation in enumerate(allocations, number):
        if first_time or not allocation.kept:
            rows.add(Action.ALLOC, storage, node_id)
        if not allocation.kept:
            rows.add(Action.FREE, storage, node_id)


def _optimizer_states(program: Program) -> list[int]:
    """List the optimizer's state on the device in the order in which optimizers make it.

    They go through the parameters and make for each all that belongs to it, whereas an operation
    takes one kind for all parameters: so by position in the list, then by operation.
    """
    classes = classify(program)
    left = {
        index
        for index, storage in enumerate(program.storages)
        if classes[index] is MemoryClass.OPTIMIZER_STATE and program.on_device(storage)
    }
    places = []
    for k, operation in enumerate(program.operations):
        call = operation.call
        shown = (program.tensors[t].storage for t in (*call.inputs, *call.outputs) if t >= 0)
        fresh = [storage for storage in dict.fromkeys(shown) if storage in left]
        left.difference_update(fresh)
        places += [(position, k, storage) for position, storage in enumerate(fresh)]
    return [storage for _, _, storage in sorted(places)]
