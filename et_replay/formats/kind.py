"""What kind of recording a file holds: the first bytes, or the keys of its JSON, go in."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection

import msgspec

from et_replay.formats.buffer_table import is_buffer_table
from et_replay.formats.chakra import is_chakra
from et_replay.formats.plain_pickle import is_pickle
from et_replay.formats.rmm_log import is_rmm_log
from et_replay.formats.stalloc_log import is_stalloc_log

_HEAD = 1 << 16
_KEY = re.compile(rb'"(nodes|traceEvents|segments|device_traces|allocations)"\s*:')


class Kind(enum.Enum):
    """What can be read; the values are what messages call it."""

    EXECUTION_TRACE = "an execution trace"
    SNAPSHOT = "a memory snapshot"
    KINETO = "a Kineto trace"
    STALLOC_LOG = "a log of STAlloc"
    RMM_LOG = "a log of RMM"
    RECORDED_STREAMS = "recorded allocation streams"
    BUFFER_TABLE = "a table of buffers"


def recognise(text: memoryview) -> Kind | None:
    """Return the kind of a file; None where it is none of them."""
    head = bytes(text[:_HEAD])
    if is_pickle(head):
        return Kind.SNAPSHOT
    if is_chakra(text):
        return Kind.EXECUTION_TRACE
    begin = head.lstrip()[:1]
    if begin == b"{":
        return _recognise_keys(_keys(text))
    if begin == b"[":
        return None
    if is_rmm_log(head):
        return Kind.RMM_LOG
    if is_buffer_table(head):
        return Kind.BUFFER_TABLE
    return Kind.STALLOC_LOG if is_stalloc_log(head) else None


def _keys(text: memoryview) -> Collection[str]:
    """Return the keys of the outermost object; of broken JSON, the first telling one anywhere."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        match = _KEY.search(text)
        return [match[1].decode()] if match else []


def _recognise_keys(keys: Collection[str]) -> Kind | None:
    if "nodes" in keys:
        return Kind.EXECUTION_TRACE
    if "traceEvents" in keys:
        return Kind.KINETO
    if "device_traces" in keys or ("segments" in keys and "events" not in keys):
        return Kind.SNAPSHOT  # torch calls no part of one events
    return Kind.RECORDED_STREAMS if "allocations" in keys else None
