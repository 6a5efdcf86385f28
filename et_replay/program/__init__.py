"""From a trace to a program: operations over storages, and the events that they cause."""

from et_replay.program.allocations import allocation_events
from et_replay.program.build import build_program
from et_replay.program.program import Call, Operation, Program, Storage, StorageKind, Tensor
from et_replay.program.schedule import Mode, Step, schedule
from et_replay.program.window import Window, select_window, windows

__all__ = [
    "Call",
    "Mode",
    "Operation",
    "Program",
    "Step",
    "Storage",
    "StorageKind",
    "Tensor",
    "Window",
    "allocation_events",
    "build_program",
    "schedule",
    "select_window",
    "windows",
]
