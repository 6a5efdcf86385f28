"""From a trace to a program: operations over storages, and the events that they cause."""

from et_replay.program.allocations import allocation_events
from et_replay.program.build import build_program, check_operations
from et_replay.program.classes import CLASS_RULE, classify, origins
from et_replay.program.collectives import is_wait
from et_replay.program.history import JOB, history_of, history_of_replay, history_of_requests
from et_replay.program.job import job_events, library_origins
from et_replay.program.libraries import LibraryAllocation, library_allocations
from et_replay.program.program import Call, Operation, Program, Storage, StorageKind, Tensor
from et_replay.program.schedule import Mode, Step, schedule
from et_replay.program.window import Window, annotation_spans, select_window, windows

__all__ = [
    "CLASS_RULE",
    "JOB",
    "Call",
    "LibraryAllocation",
    "Mode",
    "Operation",
    "Program",
    "Step",
    "Storage",
    "StorageKind",
    "Tensor",
    "Window",
    "allocation_events",
    "annotation_spans",
    "build_program",
    "check_operations",
    "classify",
    "history_of",
    "history_of_replay",
    "history_of_requests",
    "is_wait",
    "job_events",
    "library_allocations",
    "library_origins",
    "origins",
    "schedule",
    "select_window",
    "windows",
]
