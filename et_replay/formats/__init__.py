"""Reading recordings: a path goes in, an ExecutionTrace or a MemoryHistory comes out.

What the file holds decides how it is read, never its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from et_replay.errors import TraceError
from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import notes
from et_replay.formats.ancestry import find_parents
from et_replay.formats.buffer_table import (
    BufferTable,
    buffer_history,
    read_buffer_table,
)
from et_replay.formats.chakra import is_chakra, read_chakra
from et_replay.formats.crossed_calls import has_work, uncross
from et_replay.formats.document import Document, read_document
from et_replay.formats.headers import Headers
from et_replay.formats.kind import Kind, recognise
from et_replay.formats.kineto import read_kineto
from et_replay.formats.nodes import NodeDecoder
from et_replay.formats.recorded_streams import read_recorded_streams
from et_replay.formats.rmm_log import read_rmm_log
from et_replay.formats.salvage import salvage
from et_replay.formats.snapshot import read_snapshot
from et_replay.formats.source import Source, read_source
from et_replay.formats.stalloc_log import read_stalloc_log
from et_replay.formats.wrong_file import (
    EITHER_NEEDED,
    describe,
    describe_for_trace,
)

__all__ = [
    "BufferTable",
    "Kind",
    "buffer_history",
    "open_plannable",
    "open_recording",
    "open_trace",
    "sniff",
]

_LOGS = {
    Kind.RECORDED_STREAMS: read_recorded_streams,
    Kind.STALLOC_LOG: read_stalloc_log,
    Kind.RMM_LOG: read_rmm_log,
}


def open_trace(path: str | os.PathLike[str], *, strict: bool = False) -> ExecutionTrace:
    """Read an execution trace from a file, or from standard input for `-`.

    JSON and Chakra's protobuf, plain or packed by gzip, xz or zstd, are recognised by content,
    every schema by its structure. What is broken is repaired or left out, and
    `ExecutionTrace.notes` says so; `strict` refuses it instead. Raises TraceError where no trace
    can be read, and for nothing else.
    """
    return _open_trace(read_source(path), strict, describe_for_trace)


def open_recording(
    path: str | os.PathLike[str], *, strict: bool = False
) -> ExecutionTrace | MemoryHistory:
    """Read a file as `open_plannable` does, but a table of buffers as the events it stands for."""
    recording = open_plannable(path, strict=strict)
    return buffer_history(recording) if isinstance(recording, BufferTable) else recording


def open_plannable(
    path: str | os.PathLike[str], *, device: int | None = None, strict: bool = False
) -> ExecutionTrace | MemoryHistory | BufferTable:
    """Read an execution trace, a memory history or a table of buffers; `-` is standard input.

    A trace is read as `open_trace` does. A history is a memory snapshot, a Kineto trace with memory
    events, a log of STAlloc or RMM, or recorded allocation streams; `device` chooses among several
    in one file: by default, the one with the most events. Rows of a table that are no buffer are
    left out, with a note; `strict` refuses them instead. Raises TraceError where the file is none
    of them, and for nothing else.
    """
    source = read_source(path)
    kind = recognise(source.text)
    if kind in (None, Kind.EXECUTION_TRACE):
        return _open_trace(source, strict, partial(describe, needed=EITHER_NEEDED))
    if strict and source.damage:
        _refuse(source, [source.damage])
    if kind is Kind.BUFFER_TABLE:
        return _open_buffers(source, strict)
    if kind is Kind.SNAPSHOT:
        return read_snapshot(source, device)
    if kind is Kind.KINETO:
        return read_kineto(source, device)
    return _LOGS[kind](source)


def sniff(path: str | os.PathLike[str]) -> Kind | None:
    """Return what a file holds, by content; None where it is nothing that can be read."""
    return recognise(read_source(path).text)


def _open_buffers(source: Source, strict: bool) -> BufferTable:
    table = read_buffer_table(source)
    if strict:
        _refuse(source, table.damage)
    return table


def _open_trace(
    source: Source, strict: bool, described: Callable[[memoryview], str]
) -> ExecutionTrace:
    """Read a trace; of what is none, `described` says what it is."""
    if strict and source.damage:
        _refuse(source, [source.damage])
    document = _read_document(source, strict, described)
    headers = document.headers
    ids = np.array(headers.ids, np.int64)
    order = np.argsort(ids, kind="stable")
    crossed: list[str] = []
    if has_work(headers.names):
        order, crossed = _uncross(headers, order)
    ids = ids[order]
    decoder = _decoder(headers, order)
    names, parent_ids = decoder.names, decoder.parent_ids
    parents, orphans = find_parents(ids, np.array(parent_ids, np.int64), names, decoder.decode)
    damage = [
        *filter(None, (source.damage, document.damage)),
        *notes.lost(headers.lost),
        *notes.repaired(headers.repairs),
        *notes.repeated(int(np.count_nonzero(ids[1:] == ids[:-1]))),
        *notes.orphaned([node.id for node in orphans if node.is_operator]),
    ]
    if strict:
        _refuse(source, damage or decoder.damages())
    schema = document.metadata.get("schema")
    return ExecutionTrace(
        source=source.name,
        schema=schema if isinstance(schema, str) else "",
        ids=ids,
        parents=parents,
        places=order,
        names=names,
        decode=decoder.decode,
        notes=(*damage, *crossed, *document.notes, *notes.unknown_schema(schema)),
        metadata=document.metadata,
    )


def _decoder(headers: Headers, order: npt.NDArray[np.int64]) -> NodeDecoder:
    """Return what decodes the nodes in this order."""
    ids, names, parent_ids, texts = (
        [column[index] for index in order.tolist()]
        for column in (headers.ids, headers.names, headers.parent_ids, headers.texts)
    )
    return NodeDecoder(ids, names, parent_ids, texts)


def _uncross(
    headers: Headers, order: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Put right in `headers` what gloo's threads confused; return the order of the job's own nodes.

    Says in sentences what that was.
    """
    decoder = _decoder(headers, order)
    nodes = [decoder.decode(position) for position in range(len(order))]
    found = uncross(nodes, order)
    for index, parent_id in zip(order.tolist(), found.parent_ids, strict=True):
        headers.parent_ids[index] = parent_id
    return np.delete(order, found.workers), notes.crossed(found.mended, len(found.workers))


def _read_document(
    source: Source, strict: bool, described: Callable[[memoryview], str]
) -> Document:
    if is_chakra(source.text):
        return read_chakra(source)
    try:
        document = read_document(source.text)
    except (msgspec.DecodeError, RecursionError) as error:
        document = salvage(source.text)
        if strict and document.headers.linked:
            _refuse(source, [f"{error}."])
    if document is None or not document.headers.linked:
        raise TraceError(f"{source.name} {described(source.text)}.")
    return document


def _refuse(source: Source, damage: Iterable[str]) -> None:
    """Raise a TraceError for the first damage, if there is one."""
    for what in damage:
        raise TraceError(
            f"{source.name} is damaged: {what} Without strict reading, what is intact is used."
        )
