"""Reading traces: a path goes in, an ExecutionTrace comes out; what the file holds decides how."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec
import numpy as np

from et_replay.errors import TraceError
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import notes
from et_replay.formats.ancestry import find_parents
from et_replay.formats.document import Document, read_document
from et_replay.formats.nodes import NodeDecoder
from et_replay.formats.salvage import salvage
from et_replay.formats.source import Source, read_source
from et_replay.formats.wrong_file import describe

__all__ = ["open_trace"]


def open_trace(path: str | os.PathLike[str], *, strict: bool = False) -> ExecutionTrace:
    """Read an execution trace from a file, or from standard input for `-`.

    Plain JSON, gzip and zstd are recognised by content, every schema by its structure. What is
    broken is repaired or left out, and `ExecutionTrace.notes` says so; `strict` refuses it instead.
    Raises TraceError where no trace can be read, and for nothing else.
    """
    source = read_source(path)
    if strict and source.damage:
        _refuse(source, [source.damage])
    document = _read_document(source, strict)
    headers = document.headers
    ids = np.array(headers.ids, np.int64)
    order = np.argsort(ids, kind="stable")
    names, parent_ids, texts = (
        [column[index] for index in order.tolist()]
        for column in (headers.names, headers.parent_ids, headers.texts)
    )
    ids = ids[order]
    decoder = NodeDecoder(ids.tolist(), names, parent_ids, texts)
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
        names=names,
        decode=decoder.decode,
        notes=(*damage, *notes.unknown_schema(schema)),
        metadata=document.metadata,
    )


def _read_document(source: Source, strict: bool) -> Document:
    try:
        document = read_document(source.text)
    except (msgspec.DecodeError, RecursionError) as error:
        document = salvage(source.text)
        if strict and document.headers.linked:
            _refuse(source, [f"{error}."])
    if document is None or not document.headers.linked:
        raise TraceError(f"{source.name} {describe(source.text)}.")
    return document


def _refuse(source: Source, damage: Iterable[str]) -> None:
    """Raise a TraceError for the first damage, if there is one."""
    for what in damage:
        raise TraceError(
            f"{source.name} is damaged: {what} Without strict reading, what is intact is used."
        )
