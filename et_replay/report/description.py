"""A program in, what its trace holds out: windows, operators, storages, peaks, obstacles."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from et_replay.events import Action
from et_replay.execution_trace import ExecutionTrace, Node
from et_replay.program import (
    Mode,
    Program,
    StorageKind,
    allocation_events,
    annotation_spans,
    windows,
)
from et_replay.program.nesting import nest

_ROUNDING = 512
"""Every request is rounded up to a multiple of this by PyTorch's caching allocator."""

_OWN_NAMESPACES = {
    *("ao", "aten", "autograd", "cuda", "fsdp", "inductor", "mkl", "mkldnn", "onednn"),
    *("prepacked", "prim", "prims", "profiler", "quantized", "quantized_decomposed", "rngprims"),
    *("sparse", "torch", "torch_attn", "torch_nn", "xnnpack"),
}
"""Namespaces of operators that come with PyTorch itself."""


@dataclass(frozen=True)
class WindowContent:
    """A window and how many operations it holds."""

    name: str
    operations: int


@dataclass(frozen=True)
class AnnotationContent:
    """An annotation that `count` places of the window have, and the operations within these."""

    name: str
    count: int
    operations: int


@dataclass(frozen=True)
class StorageShare:
    """The storages of one kind: how many, and their bytes together."""

    kind: str
    count: int
    size: int


@dataclass(frozen=True)
class Peak:
    """The most bytes allocated at once in a mode, each request rounded up, and where that is."""

    mode: str
    allocated: int
    node_id: int
    operator: str


@dataclass(frozen=True)
class Obstacle:
    """Why `count` calls of `name` need more than the trace and PyTorch to run."""

    name: str
    count: int
    reason: str


@dataclass(frozen=True)
class Description:
    """What a trace holds, and what its window does; a `recycled` id names several storages."""

    trace: str
    schema: str
    nodes: int
    windows: Sequence[WindowContent]
    window: str
    node_ids: tuple[int, int]
    operations: int
    operators: Sequence[tuple[str, int]]
    annotations: Sequence[AnnotationContent]
    device: str
    devices: Sequence[str]
    tensors: int
    ids: int
    recycled: int
    storages: Sequence[StorageShare]
    peaks: Sequence[Peak]
    obstacles: Sequence[Obstacle]
    notes: Sequence[str]


def _windows(trace: ExecutionTrace) -> list[WindowContent]:
    """List the windows, without a last one in which nothing happened before the trace ended."""
    found = [WindowContent(w.name, len(nest(trace, w).top_level())) for w in windows(trace)]
    return found[:-1] if len(found) > 1 and not found[-1].operations else found


def describe(program: Program) -> Description:
    """Describe the trace of `program`, and the window that it was built from."""
    trace = program.trace
    storages = [storage for storage in program.storages if storage.size]
    generations = Counter((storage.device, storage.storage_id) for storage in storages)
    names = Counter(operation.node.name for operation in program.operations)
    return Description(
        trace=trace.source,
        schema=trace.schema,
        nodes=len(trace),
        windows=_windows(trace),
        window=program.window.name,
        node_ids=program.node_ids,
        operations=len(program.operations),
        operators=names.most_common(),
        annotations=_annotations(program),
        device=program.device,
        devices=sorted({storage.device for storage in storages}),
        tensors=len(program.tensors),
        ids=len(generations),
        recycled=sum(count > 1 for count in generations.values()),
        storages=[_share(program, kind) for kind in StorageKind],
        peaks=list(_peaks(program)),
        obstacles=_obstacles(program),
        notes=(*trace.notes, *program.notes),
    )


def _annotations(program: Program) -> list[AnnotationContent]:
    """List what --subgraph can name, most operations first; but for the window itself."""
    trace, window = program.trace, program.window
    operations = [window.begin + place for place in nest(trace, window).top_level()]
    counts: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for span in annotation_spans(trace, window):
        if (span.begin, span.end) == (window.begin, window.end):
            continue
        counts[span.name] += 1
        within[span.name] += bisect_left(operations, span.end) - bisect_left(operations, span.begin)
    found = [AnnotationContent(name, count, within[name]) for name, count in counts.items()]
    return sorted(found, key=lambda each: -each.operations)


def _share(program: Program, kind: StorageKind) -> StorageShare:
    sizes = [storage.size for storage in program.storages if storage.kind is kind]
    return StorageShare(kind.value, len(sizes), sum(sizes))


def _peaks(program: Program) -> Iterator[Peak]:
    for mode in (Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE):
        events = allocation_events(program, mode)
        if not len(events):
            yield Peak(mode.value, 0, -1, "")
            continue
        rounded = -(-events.size // _ROUNDING) * _ROUNDING
        allocated = np.cumsum(np.where(events.action == Action.ALLOC, rounded, -rounded))
        row = int(np.argmax(allocated))
        index = int(np.searchsorted(events.steps, row, side="right")) - 1
        if index < 0:
            yield Peak(mode.value, int(allocated[row]), -1, "")
        else:
            node = program.operations[index].node
            yield Peak(mode.value, int(allocated[row]), node.id, node.name)


def _obstacles(program: Program) -> list[Obstacle]:
    calls = [call.node for operation in program.operations for call in operation.calls]
    found = Counter((node.name, reason) for node in calls if (reason := _obstacle(node)))
    return [Obstacle(name, count, reason) for (name, reason), count in found.most_common()]


def _obstacle(node: Node) -> str:
    namespace = node.op_schema.partition("(")[0].rpartition("::")[0]
    if node.is_kernel:
        return f"generated kernel ({node.kernel_backend}); needs cuda, its source and --run-kernels"
    if node.is_collective:
        return "collective; torchrun replays the traces of all ranks together"
    if namespace and namespace not in _OWN_NAMESPACES:
        return f"from the library {namespace!r}; --import the module that registers it"
    return ""
