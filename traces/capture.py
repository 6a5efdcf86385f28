"""Takes a function that runs one training iteration; writes its trace and what it truly took.

The trace holds two iterations, marked ProfilerStep#1 and #2. Memory and time come from iterations
before them that ran without an observer. Sizes are bytes, times nanoseconds.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import (
    ExecutionTraceObserver,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
)

from et_replay.capture.kernels import kernel_sources

Iteration = Callable[[], None]
Build = Callable[[torch.device], Iteration]
Truth = dict[str, Any]

RECORDED_STEPS = 2
MEASURED = "measured iteration"
# Tensors get their memory through these. What has neither on its stack is an operator's own buffer:
# scratch space of cuDNN or CUB, say, which no trace records.
TENSOR_ALLOCATORS = ("at::detail::empty_", "at::native::resize_")


def argument_parser(description: str) -> argparse.ArgumentParser:
    """Make a parser with the flags that every model script shares."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda", help="cuda or cpu (default: cuda)")
    parser.add_argument("--output", type=Path, required=True, help="trace to write, named .json.gz")
    parser.add_argument("--warm-up", type=int, default=3, help="iterations run first (default: 3)")
    parser.add_argument("--timed", type=int, default=20, help="iterations timed (default: 20)")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the model, and save the sources of its kernels in the folder NAME_resources",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all values (default: 0)")
    return parser


def capture(build: Build, arguments: argparse.Namespace) -> None:
    """Build the job, measure it, record it, and write the trace and its `.truth.json`."""
    output: Path = arguments.output
    if not output.name.endswith(".json.gz"):
        raise SystemExit(f"Expected an --output that ends in .json.gz, got {output}.")
    device = torch.device(arguments.device)
    torch.manual_seed(arguments.seed)
    measure = measure_cuda if device.type == "cuda" else measure_cpu
    iteration, memory = measure(build, device, arguments.warm_up)
    truth = environment(device) | memory
    truth["iteration_time_ns"] = median_time(iteration, device, arguments.timed)
    trace, recorded, sources = record(iteration, device, arguments.compile)
    truth |= recorded
    if device.type == "cuda":
        truth |= persistent_workspaces()
    output.write_bytes(gzip.compress(trace, mtime=0))
    name = output.name.removesuffix(".json.gz")
    for kernel_file, source in sources.items():
        folder = output.with_name(f"{name}_resources")
        folder.mkdir(exist_ok=True)
        (folder / kernel_file).write_bytes(source)
    truth_path = output.with_name(f"{name}.truth.json")
    truth_path.write_text(json.dumps(truth, indent=2) + "\n")
    print(f"Wrote {output} ({output.stat().st_size} bytes) and {truth_path}", file=sys.stderr)


def environment(device: torch.device) -> Truth:
    """Say what ran, and on what."""
    script = Path(sys.argv[0])
    command = ["python", f"{script.parent.name}/{script.name}", *sys.argv[1:]]
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    return {
        "command": shlex.join(command),
        "torch": torch.__version__,
        "device": name,
    }


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_time(iteration: Iteration, device: torch.device, count: int) -> int:
    """Time `count` iterations, each from an idle device to an idle device."""
    times = []
    for _ in range(count):
        synchronize(device)
        start = time.perf_counter_ns()
        iteration()
        synchronize(device)
        times.append(time.perf_counter_ns() - start)
    return round(statistics.median(times))


def record(
    iteration: Iteration, device: torch.device, compiled: bool
) -> tuple[bytes, Truth, dict[str, bytes]]:
    """Run one iteration unrecorded and two recorded.

    Returns the trace, the peaks on cuda, and of a compiled model the sources of its kernels.
    """
    peaks: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        observer = ExecutionTraceObserver().register_callback(str(path))
        if compiled:  # torch 2.6 saves kernels anyway
            getattr(observer, "set_extra_resource_collection", bool)(True)
        with profile(
            activities=[ProfilerActivity.CPU],
            record_shapes=compiled,  # without it launches of kernels are recorded bare
            schedule=schedule(wait=0, warmup=1, active=RECORDED_STEPS, repeat=1),
            execution_trace_observer=observer,
        ) as profiler:
            for step in range(1 + RECORDED_STEPS):
                if device.type == "cuda":
                    synchronize(device)
                    torch.cuda.reset_peak_memory_stats(device)
                iteration()
                if device.type == "cuda" and step > 0:
                    peaks[f"ProfilerStep#{step}"] = torch.cuda.max_memory_allocated(device)
                profiler.step()
        trace = path.read_bytes()
        truth: Truth = {"recorded_peak_allocated_bytes": peaks} if peaks else {}
        sources = kernel_sources(trace, path.with_name("trace_resources"))
        return trace, truth, {name: source.read_bytes() for name, source in sources.items()}


def measure_cuda(build: Build, device: torch.device, warm_up: int) -> tuple[Iteration, Truth]:
    """Warm up, read the allocator's counters over one iteration and its history over the next."""
    iteration = build(device)
    for _ in range(warm_up):
        iteration()
    gc.collect()
    synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    iteration()
    synchronize(device)
    memory: Truth = {
        "allocated_before_bytes": before,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
    }
    return iteration, memory | transient_buffers(iteration, device)


def transient_buffers(iteration: Iteration, device: torch.device) -> Truth:
    """Tell operators' own buffers from tensors, by the native stack of each allocation.

    Works on requested bytes, which the allocator's history has exactly.
    """
    os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)["requested_bytes.all.current"]
    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="all")
    iteration()
    synchronize(device)
    events = torch.cuda.memory._snapshot(device)["device_traces"][device.index or 0]
    torch.cuda.memory._record_memory_history(None)
    peak = torch.cuda.memory_stats(device)["requested_bytes.all.peak"]
    swept = sweep(events)
    if before + swept["highest"] != peak:
        raise RuntimeError(
            f"The history peaks at {before + swept['highest']} bytes, the allocator at {peak}."
        )
    return {
        "peak_requested_bytes": peak,
        "peak_requested_without_transients_bytes": before + swept["highest_tensors"],
        "transient_bytes_at_peak": swept["transient_at_highest"],
        "transients": swept["callers"],
    }


def sweep(events: list[dict[str, Any]]) -> Truth:
    """Add up allocations and frees in order from zero, tensors and operators' buffers apart."""
    live: dict[int, int] = {}
    tensors = transient = 0
    result: Truth = {"highest": 0, "highest_tensors": 0, "transient_at_highest": 0, "callers": {}}
    for event in events:
        address, size = event["addr"], event["size"]
        if event["action"] == "alloc":
            names = [frame["name"] for frame in event.get("frames", [])]
            if any(part in name for name in names for part in TENSOR_ALLOCATORS):
                tensors += size
            else:
                live[address] = size
                transient += size
                seen = result["callers"].setdefault(
                    operator_name(names), {"count": 0, "largest_bytes": 0}
                )
                seen["count"] += 1
                seen["largest_bytes"] = max(seen["largest_bytes"], size)
        elif event["action"] == "free_completed":
            if address in live:
                transient -= live.pop(address)
            else:
                tensors -= size
        if tensors + transient > result["highest"]:
            result |= {"highest": tensors + transient, "transient_at_highest": transient}
        result["highest_tensors"] = max(result["highest_tensors"], tensors)
    return result


def operator_name(names: list[str]) -> str:
    """Name the operator nearest to an allocation: `at::_ops::nonzero::call` is `nonzero`."""
    for name in names:
        if "at::_ops::" in name:
            return name.split("at::_ops::")[1].split("::")[0]
    return "unknown"


def persistent_workspaces() -> Truth:
    """Count the cuBLAS workspaces, each held for a thread and stream, by giving them back."""
    before = torch.cuda.memory_stats()
    torch._C._cuda_clearCublasWorkspaces()
    after = torch.cuda.memory_stats()
    names = {
        "library_workspace_bytes": "allocated_bytes.all.current",
        "library_workspace_count": "allocation.all.current",
    }
    return {name: before[counter] - after[counter] for name, counter in names.items()}


def measure_cpu(build: Build, device: torch.device, warm_up: int) -> tuple[Iteration, Truth]:
    """Build, warm up and run one iteration; the profiler counts the bytes of the CPU allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        iteration = build(device)
        for _ in range(warm_up):
            iteration()
        gc.collect()
        with record_function(MEASURED):
            iteration()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    mark = next(event for event in events if event.get("name") == MEASURED)
    totals = [
        (event["ts"], event["args"]["Total Allocated"])
        for event in events
        if event.get("name") == "[memory]"
    ]
    begin, end = mark["ts"], mark["ts"] + mark["dur"]
    memory: Truth = {
        "allocated_before_bytes": max((time, total) for time, total in totals if time < begin)[1],
        "peak_allocated_bytes": max(total for time, total in totals if begin <= time <= end),
        "peak_reserved_bytes": None,
    }
    return iteration, memory
