"""Short ways to build a program from a hand-written trace, and to write down what it should be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from trace_builder import LATEST, NodeSpec, write_trace

from et_replay.events import Action, AllocationEvents
from et_replay.formats import open_trace
from et_replay.program import Mode, Program, allocation_events, build_program, select_window

Life = tuple[int, str, int, int]


def program_of(
    folder: Path, *nodes: NodeSpec, window: str | None = None, schema: str = LATEST
) -> Program:
    """Build the program of a trace that holds `nodes` below process node 1 and thread node 2."""
    trace = open_trace(write_trace(folder / "trace.json", *nodes, schema=schema))
    return build_program(trace, select_window(trace, window))


def lives(program: Program) -> list[Life]:
    """Return (storage id, kind, bytes, last node id) of every storage that has bytes, sorted."""
    last = program.storage_to_last_node_id
    return sorted(
        (each.storage_id, each.kind.name.lower(), each.size, last[index])
        for index, each in enumerate(program.storages)
        if each.size > 0
    )


def lives_of_any_kind(program: Program) -> list[tuple[int, int, int, bool]]:
    """Return (storage id, bytes, last node id, whether it existed before the window), sorted."""
    return sorted((id, size, last, kind == "input") for id, kind, size, last in lives(program))


def operation_ids(program: Program) -> list[int]:
    """Return the node ids of the operations in execution order."""
    return [operation.call.node.id for operation in program.operations]


def storages_of(program: Program, tensor_indices: tuple[int, ...]) -> list[int]:
    """Return the storage index of each tensor of a call, -1 for undefined ones."""
    return [-1 if index < 0 else program.tensors[index].storage for index in tensor_indices]


def changes(program: Program, mode: Mode) -> list[list[str]]:
    """Return the events as `+id:bytes` and `-id:bytes`: before the operations, each one, after."""
    events = allocation_events(program, mode)
    rows = [
        f"{'+' if action == Action.ALLOC else '-'}{program.storages[storage].storage_id}:{size}"
        for action, storage, size in zip(events.action, events.storage, events.size, strict=True)
    ]
    bounds = [0, *events.steps.tolist(), len(rows)]
    assert bounds == sorted(bounds)
    assert len(bounds) == len(program.operations) + 3
    return [rows[begin:end] for begin, end in pairwise(bounds)]


def peak(events: AllocationEvents) -> int:
    """Return the most bytes live at once, each size rounded up to 512, of events that pair up."""
    live: dict[int, int] = {}
    total = highest = 0
    for action, storage, size in zip(events.action, events.storage, events.size, strict=True):
        if action == Action.ALLOC:
            assert storage not in live, "allocated while live"
            assert size > 0
            live[storage] = int(size)
        else:
            assert live.pop(storage, None) == size, "freed what is not live, or with another size"
        total += (1 if action == Action.ALLOC else -1) * -(-int(size) // 512) * 512
        highest = max(highest, total)
    return highest


def never_freed(events: AllocationEvents) -> set[int]:
    """Return the storages that are still allocated when the events end."""
    made = events.storage[events.action == Action.ALLOC].tolist()
    return set(made) - set(events.storage[events.action == Action.FREE].tolist())
