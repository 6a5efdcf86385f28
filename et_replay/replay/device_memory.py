"""A program and how to replay it in, the memory of the replay's device out."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from et_replay import pluggable
from et_replay.errors import ReplayError, UsageError
from et_replay.events import Action, AllocationEvents
from et_replay.planning import Plan, check_plan, lifetimes, plan_events
from et_replay.program.allocations import allocation_events
from et_replay.program.program import Program
from et_replay.program.schedule import Step
from et_replay.replay.memory import DeviceMemory, MeasuredMemory, SimulatedMemory
from et_replay.replay.options import ReplayOptions
from et_replay.replay.served_memory import ServedMemory
from et_replay.replay.target import Target
from et_replay.simulation import TORCH, allocator_name
from et_replay.units import format_bytes


def served_memory(options: ReplayOptions, target: Target) -> ServedMemory | None:
    """Let an allocator of ours serve a real device where one was asked for, else PyTorch's own.

    Call it before anything uses CUDA in the process.
    """
    name = allocator_name(options.allocator or "")
    if name == TORCH or not (name or options.planned):
        if pluggable.is_installed():
            raise UsageError(
                "PyTorch's own allocator cannot serve where another has been installed: replay with"
                " it in a process of its own."
            )
        return None
    return ServedMemory(target, options.allocator_that_serves, options.device_memory)


def memory_for(
    program: Program, options: ReplayOptions, target: Target, steps: list[Step]
) -> DeviceMemory:
    """Make the memory of a device that no allocator of ours serves, for operations in `steps`."""
    capacity = options.device_memory
    if not target.simulated:
        settings = (options.allocator or "").partition(":")[2]
        return MeasuredMemory(target, capacity, settings)
    events = allocation_events(program, options.mode, steps)
    if target.device.type == "cpu":
        _check_host_memory(events, capacity)
    return SimulatedMemory(
        program,
        events,
        steps,
        options.allocator_that_serves,
        options.simulated_memory,
        options.other_memory,
        options.library_workspace,
        _plan_for(events, options, program) if options.planned else None,
        options.imitated_version,
    )


def check_plan_given(
    plan: Plan, events: AllocationEvents, options: ReplayOptions, program: Program
) -> None:
    """Raise PlanError for a plan that was not made for these events of `program`."""
    source, window = program.trace.source, program.window.name
    check_plan(plan, lifetimes(events), source, options.mode.value, window)


def _plan_for(events: AllocationEvents, options: ReplayOptions, program: Program) -> Plan:
    """Return the plan to serve: the one given, if it was made for these events, or a new one."""
    if options.plan is None:
        return replace(plan_events(events), source=program.trace.source)
    check_plan_given(options.plan, events, options, program)
    return options.plan


def _check_host_memory(events: AllocationEvents, capacity: int | None) -> None:
    """Refuse what this machine cannot hold: its kernel would end the process without a word."""
    signed = np.where(events.action == Action.ALLOC, events.size, -events.size)
    needed = int(signed.cumsum().max(initial=0))
    if capacity is not None:
        needed = min(needed, capacity)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ReplayError(
            f"The replay needs {format_bytes(needed)} on cpu, and this machine has"
            f" {format_bytes(there)}; --device meta needs none."
        )
