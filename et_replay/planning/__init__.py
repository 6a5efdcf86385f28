"""From lifetimes to addresses: packings of buffers, plans of events, and plan files."""

from et_replay.buffers import Buffers
from et_replay.events import RunPlan
from et_replay.planning.coverage import Fate, coverage
from et_replay.planning.cycle import CyclicPacking, plan_cycle
from et_replay.planning.events import plan_events, plan_history
from et_replay.planning.iterations import find_iterations, marked_iterations
from et_replay.planning.lifetimes import Lifetimes, StorageClass, lifetimes
from et_replay.planning.packing import Effort, Packing, find_fault, plan_buffers
from et_replay.planning.plan import Plan, fault_of, is_by_stream
from et_replay.planning.plan_file import (
    check_plan,
    encode_plan,
    read_plan,
    sizes_by_class,
)
from et_replay.planning.run_plan import run_plan
from et_replay.planning.table import is_by_offset, plan_table, table_lifetimes

__all__ = [
    "Buffers",
    "CyclicPacking",
    "Effort",
    "Fate",
    "Lifetimes",
    "Packing",
    "Plan",
    "RunPlan",
    "StorageClass",
    "check_plan",
    "coverage",
    "encode_plan",
    "fault_of",
    "find_fault",
    "find_iterations",
    "is_by_offset",
    "is_by_stream",
    "lifetimes",
    "marked_iterations",
    "plan_buffers",
    "plan_cycle",
    "plan_events",
    "plan_history",
    "plan_table",
    "read_plan",
    "run_plan",
    "sizes_by_class",
    "table_lifetimes",
]
