"""The planner on every instance: ratio to the lower bound, seconds and memory, beside its target.

Run as `python tests/benchmarks/bench_planning.py [--only 'jobs/*'] [--first-plan] [--compare]`; it
needs the folder of real data beside the checkout for all but the generated instances. Each instance
is planned in a process of its own, and its plan goes through the slow validator of the tests. Ends
with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest import DATA
from planner_oracle import blocks_of, find_fault, unroll
from planning_baselines import arena_of, first_fit_by_size, first_fit_by_start
from planning_cases import Case, all_cases
from planning_instances import offset_of, random_cycle

from et_replay.planning import Buffers, Effort, plan_buffers, plan_cycle

FIRST_PLAN_TIMEOUT = 2.0
FIRST_PLAN_SECONDS = 2.3
MEMORY_LIMIT_MIB = 2048
HARD_TOGETHER_SECONDS = 30
PIPELINES_MEAN = 1.00017
RESERVED_TO_ACTIVE = 1.005

Figures = dict[str, float]
HEADING = (
    f"{'instance':<32} {'buffers':>8} {'ratio':>9} {'target':>10} {'seconds':>8} {'limit':>6}"
    f" {'MiB':>6} {'size':>7} {'start':>7}      method"
)


def plan_case(case: Case, effort: Effort, baseline_limit: int) -> Figures | dict[str, str]:
    """Plan one instance, and measure this process."""
    instance = case.load()
    buffers = Buffers(*instance)
    forget_peak_memory()
    began = time.perf_counter()
    packing = plan_buffers(buffers, effort)
    seconds = time.perf_counter() - began
    memory = peak_memory_mib()
    figures = {
        "buffers": len(buffers),
        "arena": packing.arena_bytes,
        "bound": packing.lower_bound_bytes,
        "seconds": seconds,
        "memory": memory,
        "proven": packing.proven,
        "method": packing.method,
        "fault": find_fault(blocks_of(*instance), packing.offsets.tolist(), packing.arena_bytes),
    }
    if len(buffers) <= baseline_limit:
        figures["by_size"] = arena_of(instance, first_fit_by_size(instance))
        figures["by_start"] = arena_of(instance, first_fit_by_start(instance))
    return figures


def forget_peak_memory() -> None:
    """Let the peak of this process start again, after what loading took."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mib() -> float:
    """Return the most that this process has been resident with."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def in_a_process(name: str, options: argparse.Namespace, timeout: float = 0) -> Figures:
    """Plan the case of this name in a new process, so that its memory is its own."""
    command = [sys.executable, __file__, "--child", name, "--timeout", str(timeout)]
    command += ["--effort", options.effort]
    command += ["--pipelines", str(options.pipelines), "--rectangles", str(options.rectangles)]
    command += ["--more", str(options.more)] if options.more else []
    command += ["--baseline-limit", str(0 if timeout else options.baseline_limit)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        last_line = result.stderr.strip().rpartition("\n")[2]
        return {"fault": last_line or f"ended with {result.returncode}"}
    return json.loads(result.stdout)


def ratio_of(arena: float, bound: float) -> float:
    return arena / bound if bound else 1.0


def row(case: Case, figures: Figures) -> tuple[str, bool]:
    """Write one line of the table, and say whether the target is reached."""
    if "arena" not in figures:
        return f"{case.name:<32} FAULT {figures['fault']}", False
    arena, bound = figures["arena"], figures["bound"]
    good = case.passes(arena, bound, figures["seconds"]) and not figures["fault"]
    good = good and figures["memory"] < MEMORY_LIMIT_MIB
    target = "-"
    if case.arena is not None:
        target = f"{ratio_of(case.arena, bound):.6f}"
    elif case.ratio is not None:
        target = f"{case.ratio:.6f}"
    baselines = [
        f"{ratio_of(figures[name], bound):>7.3f}" if name in figures else f"{'-':>7}"
        for name in ("by_size", "by_start")
    ]
    text = (
        f"{case.name:<32} {figures['buffers']:>8} {ratio_of(arena, bound):>9.6f} {target:>10}"
        f" {figures['seconds']:>8.2f} {case.seconds:>6.0f} {figures['memory']:>6.0f}"
        f" {' '.join(baselines)} {'ok  ' if good else 'MISS'} {figures['method']}"
        f"{', proven' if figures['proven'] else ''} {figures['fault']}"
    )
    return text, good


def report_instances(cases: Sequence[Case], options: argparse.Namespace) -> bool:
    """Print the table of all instances, and what they come to together."""
    print(f"Effort {options.effort}; size and start: plain first fit in that order\n\n{HEADING}")
    done: dict[str, Figures] = {}
    good = True
    for case in cases:
        done[case.name] = in_a_process(case.name, options)
        text, reached = row(case, done[case.name])
        print(text, flush=True)
        good &= reached
    hard = [f["seconds"] for name, f in done.items() if name.startswith("minimalloc/")]
    if len(hard) == 12 and all(hard):
        good &= sum(hard) <= HARD_TOGETHER_SECONDS
        print(f"minimalloc together: {sum(hard):.1f} s, limit {HARD_TOGETHER_SECONDS} s")
    for group in ("pipeline/", "rectangle/"):
        found = [f for name, f in done.items() if name.startswith(group) and "arena" in f]
        ratios = [ratio_of(f["arena"], f["bound"]) for f in found]
        if ratios:
            mean, exact = sum(ratios) / len(ratios), sum(r == 1 for r in ratios)
            print(
                f"{group}*: mean {mean:.6f}, worst {max(ratios):.6f}, {exact} of {len(ratios)} at"
                f" the bound, {sum(f['seconds'] for f in found) / len(found):.1f} s each"
            )
            good &= group != "pipeline/" or mean <= PIPELINES_MEAN
    return good


def report_first_plans(cases: Sequence[Case], options: argparse.Namespace) -> bool:
    """Print what comes back after two seconds."""
    print(f"\nStopped after {FIRST_PLAN_TIMEOUT} s: seconds until the valid plan is there, ratio")
    good = True
    for case in cases:
        figures = in_a_process(case.name, options, FIRST_PLAN_TIMEOUT)
        if figures["fault"]:
            print(f"{case.name:<32} MISS {figures['fault']}")
            good = False
            continue
        reached = figures["seconds"] <= FIRST_PLAN_SECONDS
        good &= reached
        print(
            f"{case.name:<32} {figures['buffers']:>8} {figures['seconds']:>6.2f}"
            f" {ratio_of(figures['arena'], figures['bound']):>9.6f} {'ok' if reached else 'MISS'}",
            flush=True,
        )
    return good


def report_cycles(count: int, level: str) -> bool:
    """Plan random windows that repeat, and iterate each ten times under the validator."""
    faults, ratios, proven = [], [], 0
    for seed in range(count):
        cycle = random_cycle(seed, count=20 + seed % 10 * 20)
        window = (cycle.begin, cycle.end)
        packing = plan_cycle(Buffers(*cycle.buffers), *window, Effort(level))
        births = unroll(*cycle.buffers, window)
        offsets = [offset_of(packing, birth.buffer, birth.iteration) for birth in births]
        fault = find_fault([birth.block for birth in births], offsets, packing.arena_bytes)
        faults += [f"seed {seed}: {fault}"] if fault else []
        ratios.append(ratio_of(packing.arena_bytes, packing.lower_bound_bytes))
        proven += packing.proven
    print(
        f"\nRandom cycles, ten iterations each: {count}, {len(faults)} with an overlap; ratio to"
        f" what lives at once: mean {sum(ratios) / count:.4f}, worst {max(ratios):.4f}; {proven}"
        " proven"
    )
    print("\n".join(faults[:10]))
    return not faults


def report_comparisons() -> bool:
    """Print what `compare` says of the jobs' snapshots and traces over five iterations."""
    print(f"\nCompare, 5 iterations: reserved to active, at most {RESERVED_TO_ACTIVE} for stalloc")
    good = True
    for path in sorted(DATA.glob("workloads/*[st].*gz")):
        command = [sys.executable, "-m", "et_replay", "compare", "--trace", str(path)]
        command += ["--allocator", "stalloc", "--allocator", "native"]
        command += ["--iterations", "5", "--json", "-"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            print(f"{path.name:<32} MISS {result.stderr.strip()}")
            good = False
            continue
        rows = {row["allocator"]: row for row in json.loads(result.stdout)["results"]}
        active = min(row["peak_active_bytes"] for row in rows.values())
        ratio = {name: row["peak_reserved_bytes"] / active for name, row in rows.items()}
        fallback = rows["stalloc"]["plan"]["fallback"]["requests"]
        reached = ratio["stalloc"] <= RESERVED_TO_ACTIVE and fallback == 0
        good &= reached
        print(
            f"{path.name:<32} stalloc {ratio['stalloc']:.4f} native {ratio['native']:.4f}"
            f" fallback {fallback} {'ok' if reached else 'MISS'}",
            flush=True,
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", metavar="GLOB", help="instances, repeatable")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--effort", choices=("fast", "best"), default="fast")
    parser.add_argument("--pipelines", type=int, default=12, metavar="N")
    parser.add_argument("--rectangles", type=int, default=6, metavar="N")
    parser.add_argument("--more", type=Path, metavar="FOLDER", help="with CSVs of real jobs")
    parser.add_argument("--cycles", type=int, default=100, metavar="N")
    parser.add_argument("--baseline-limit", type=int, default=20_000, metavar="N")
    parser.add_argument("--first-plan", action="store_true", help="also stop each after 2 s")
    parser.add_argument("--compare", action="store_true", help="also compare allocators")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--timeout", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = list(all_cases(DATA, options.pipelines, options.rectangles, options.more))
    if options.child:
        (case,) = [case for case in cases if case.name == options.child]
        effort = Effort(options.effort, options.timeout or None)
        print(json.dumps(plan_case(case, effort, options.baseline_limit)))
        return 0
    wanted = options.only or ["*"]
    cases = [case for case in cases if any(fnmatch(case.name, glob) for glob in wanted)]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    good = report_instances(cases, options)
    if options.first_plan:
        good &= report_first_plans(cases, options)
    if not options.only:
        good &= report_cycles(options.cycles, options.effort)
    if options.compare:
        good &= report_comparisons()
    print("\nEvery target is reached." if good else "\nA target is missed: see MISS.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
