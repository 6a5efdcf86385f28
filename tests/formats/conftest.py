"""Fixtures for reading: a text, hand-written nodes or a snapshot, as what it was opened as."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from trace_builder import LATEST, NodeSpec, trace

from et_replay.events import MemoryHistory
from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_plannable, open_trace

Reader = Callable[..., ExecutionTrace]


@pytest.fixture
def read_text(tmp_path: Path) -> Reader:
    """Write a text, or bytes, to a file and open that."""

    def read(text: str | bytes, strict: bool = False) -> ExecutionTrace:
        path = tmp_path / "trace.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return open_trace(path, strict=strict)

    return read


@pytest.fixture
def read_nodes(read_text: Reader) -> Reader:
    """Write hand-written nodes in a schema's layout and open the file."""

    def read(
        *nodes: NodeSpec, schema: str | None = LATEST, roots: bool = True, strict: bool = False
    ) -> ExecutionTrace:
        return read_text(json.dumps(trace(*nodes, schema=schema, roots=roots)), strict)

    return read


@pytest.fixture
def read_history(tmp_path: Path) -> Callable[..., MemoryHistory]:
    """Write bytes, a text, or a snapshot to be pickled, to a file and open that as a history."""

    def read(content: bytes | str | dict, device: int | None = None) -> MemoryHistory:
        if isinstance(content, dict):
            content = pickle.dumps(content, 4)
        path = tmp_path / "history"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return open_plannable(path, device=device)

    return read
