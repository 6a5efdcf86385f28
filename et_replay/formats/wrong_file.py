"""What a file that cannot be read looks like: a sentence that says which file is needed."""

from __future__ import annotations

import re

import msgspec

from et_replay.formats.buffer_table import describe_near_table
from et_replay.formats.kind import Kind, recognise

TRACE_NEEDED = "needed is the JSON file that PyTorch's ExecutionTraceObserver writes"
EITHER_NEEDED = (
    f"{TRACE_NEEDED}, or a memory history, such as the pickle that"
    " torch.cuda.memory._dump_snapshot writes"
)
_TABLE_NEEDED = "needed is a CSV of buffers, whose first line names the columns id,lower,upper,size"

_BZIP2 = b"BZh"
_BEGINNINGS = (
    (b"PK\x03\x04", "is a zip archive, such as a torch.save file"),
    (b"SQLite format 3\x00", "is a database, such as a profile of Nsight Systems"),
    (b"\x80", "is a Python pickle, such as a CUDA memory snapshot"),
)

# a protobuf stream opens with a length and the version string in field 1 of GlobalMetadata
_PROTOBUF = re.compile(rb"[\x00-\x7f]{1,3}\n[\x01-\x20]\d+\.\d+")

_KINDS = (
    ("traceEvents", "is a Kineto trace of the PyTorch profiler (its events are times, not calls)"),
    ("device_traces", "is a CUDA memory snapshot"),
)


def describe(text: memoryview, needed: str = TRACE_NEEDED) -> str:
    """Say what the text looks like: the rest of a sentence that begins with the file's name."""
    head = bytes(text[:4096])
    if not head.strip():
        return f"is empty: record it again; {needed}"
    if head.startswith(_BZIP2):
        return "is compressed with bzip2; unpack it, or pack it with gzip, xz or zstd"
    for beginning, answer in _BEGINNINGS:
        if head.startswith(beginning):
            return f"{answer}; {needed}"
    if _PROTOBUF.match(head):
        return f"is a Chakra trace in protobuf form (.et); {needed}, before its conversion"
    if b"\x00" in head:
        return f"is a binary file; {needed}"
    for key, kind in _KINDS:
        if re.search(b'"%b"\\s*:' % key.encode(), text):
            return f"{kind}; {needed}"
    is_json = head.lstrip()[:1] in (b"{", b"[")
    if not is_json and (near := describe_near_table(head)):
        return f"{near}; {needed if needed == TRACE_NEEDED else _TABLE_NEEDED}"
    return f"{_describe_json(text)}; {needed}"


def describe_for_trace(text: memoryview) -> str:
    """Describe what is no execution trace; of a memory history, say too which commands read it."""
    kind = recognise(text)
    if kind is None or kind is Kind.EXECUTION_TRACE:
        return describe(text)
    is_told_apart = kind in (Kind.SNAPSHOT, Kind.KINETO)  # from what else it may be
    answer = describe(text) if is_told_apart else f"is {kind.value}; {TRACE_NEEDED}"
    events = " with memory events" if kind is Kind.KINETO else ""
    return f"{answer}, while compare, fit, plan, timeline and replay read {kind.value}{events}"


def _describe_json(text: memoryview) -> str:
    try:
        content = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return "is not a JSON object"
    except (msgspec.DecodeError, RecursionError):
        return "is not JSON and holds no node of a trace"
    if "nodes" in content:
        return "has no node of an execution trace in its list of nodes"
    keys = ", ".join(list(content)[:5])
    return f"is JSON without a list of nodes (its keys: {keys or 'none'})"
