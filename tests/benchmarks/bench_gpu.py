"""Jobs and their replays on one GPU, one after another: time and memory of a replay over the job's.

Run as `python tests/benchmarks/bench_gpu.py --output FIGURES.json [--recorded FOLDER]`. It captures
the jobs of `traces/` at larger sizes and replays each in the three modes; compares allocators; runs
replays out of memory; and times an allocation and its free. FOLDER has more traces, NAME_et.json.gz
with the job's time and peak in NAME_info.json: then these are the ones that allocators are compared
for, and that run out of memory. `--table FIGURES.json` prints the README's tables.

Hosts are shared: jobs and replays run on the cores that are quietest at that moment, replays in
turns with the others of their trace, and the turn that was disturbed least counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
JOBS = {
    "convnet": "convnet.py --widths 64 128 256 512 --blocks 2 --size 224 --classes 1000",
    "transformer": "transformer.py --layers 6 --width 768 --heads 12 --batch 8 --length 1024"
    " --vocabulary 50257 --autocast",
    "moe": "moe.py",
    "compiled": "transformer.py --compile --layers 6 --width 768 --heads 12 --batch 8",
}
MODES = ("pre", "lazy", "stalloc")
TURNS = 2
CORES = 4
ALL_CORES = sorted(os.sched_getaffinity(0))
HANGING = 300
"""Seconds after which a process counts as hanging."""
MIB = 2**20
Job = tuple[str, Path, dict[str, int]]


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="where to write the figures")
    parser.add_argument("--recorded", type=Path, help="folder of traces of other jobs")
    parser.add_argument("--only", nargs="*", help="measure these anew, and keep what else is there")
    parser.add_argument("--table", type=Path, help="figures to print as a table")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(table(json.loads(arguments.table.read_text())))
        return
    if arguments.output is None:
        parser.error("expected --output or --table")
    only = arguments.only
    figures = kept(arguments.output, only)
    with tempfile.TemporaryDirectory() as folder:
        for name, trace, job in own_jobs(Path(folder), only):
            measure(figures, name, trace, job)
            if arguments.recorded is None:
                limit(figures, name, trace)
            save(figures, arguments.output)
        for name, trace, job in recorded_jobs(arguments.recorded, only):
            measure(figures, name, trace, job)
            limit(figures, name, trace)
            compare(figures, name, trace)
            save(figures, arguments.output)
    if only is None or "pairs" in only:
        figures["pairs"] = json.loads(run("tests/benchmarks/bench_pluggable.py", "--json").stdout)
        save(figures, arguments.output)


def save(figures: dict[str, Any], output: Path) -> None:
    """Write what has been measured so far: a run may be cut short."""
    output.write_text(json.dumps(figures, indent=1) + "\n")


def kept(output: Path, only: list[str] | None) -> dict[str, Any]:
    """Return the figures that stay: none without `only`, else those of other names."""
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    before = {} if only is None else json.loads(output.read_text())
    for key in ("replays", "allocators", "out_of_memory"):
        figures[key] = [row for row in before.get(key, ()) if row["name"] not in (only or ())]
    return {**figures, "pairs": before.get("pairs", {})}


def own_jobs(folder: Path, only: list[str] | None) -> Iterator[Job]:
    """Run and capture each job; yield its name and trace, its time in ns and its peaks in bytes."""
    for name, command in JOBS.items():
        if only is not None and name not in only:
            continue
        script, *sizes = shlex.split(command)
        trace = folder / f"{name}.json.gz"
        run(f"traces/{script}", "--output", str(trace), *sizes)
        truth = json.loads((folder / f"{name}.truth.json").read_text())
        keys = ("iteration_time_ns", "peak_allocated_bytes", "peak_reserved_bytes")
        yield name, trace, {key: truth[key] for key in keys}


def recorded_jobs(
    folder: Path | None, only: list[str] | None
) -> Iterator[tuple[str, Path, dict[str, int]]]:
    """Yield the same of jobs that ran elsewhere."""
    for info_file in sorted(folder.glob("*_info.json")) if folder else ():
        info = json.loads(info_file.read_text())
        short = info_file.name.removesuffix("_info.json")
        name = f"{short} (recorded)"
        if only is not None and name not in only:
            continue
        yield (
            name,
            info_file.with_name(f"{short}_et.json.gz"),
            {
                "iteration_time_ns": round(info["iter_ms"] * 1e6),
                "peak_allocated_bytes": info["peak_alloc_1iter"],
                "peak_reserved_bytes": info["peak_reserved"],
            },
        )


def measure(figures: dict[str, Any], name: str, trace: Path, job: dict[str, int]) -> None:
    """Replay one trace in every mode."""
    turns = [
        [picked(replay(trace, "--tensor-allocation-mode", mode)) for mode in MODES]
        for _ in range(TURNS)
    ]
    for mode, rows in zip(MODES, zip(*turns, strict=True), strict=True):
        fastest = min(rows, key=lambda row: row["iteration_time_ns"])
        figures["replays"].append({"name": name, "job": job, "mode": mode, **fastest})


def compare(figures: dict[str, Any], name: str, trace: Path) -> None:
    """Replay one trace under every allocator."""
    words = ("compare", "--trace", str(trace), "--device", "cuda", "--json", "-")
    compared = run("-m", "et_replay", *words)
    for row in json.loads(compared.stdout)["results"]:
        measured = row["measured"]
        figures["allocators"].append(
            {
                "name": name,
                "allocator": row["allocator"],
                "simulated_peak_reserved_bytes": row["peak_reserved_bytes"],
                "peak_reserved_bytes": measured["peak_reserved_bytes"],
                "peak_allocated_bytes": measured["peak_allocated_bytes"],
                "iteration_time_ns": statistics.median(measured["iteration_time_ns"]),
            }
        )


def limit(figures: dict[str, Any], name: str, trace: Path) -> None:
    """Replay one trace, which has been measured before, on less than its peak."""
    peak = figures["replays"][-len(MODES)]["peak_allocated_bytes"]
    less = ("--device-memory", str(peak // MIB * MIB - 8 * MIB))
    pre = replay(trace, *less)
    lazy = replay(
        trace, *less, "--tensor-allocation-mode", "lazy", "--device-memory-threshold", "0.9"
    )
    figures["out_of_memory"].append(
        {
            "name": name,
            "pre": (pre["out_of_memory"] or {}).get("operator"),
            "lazy": (lazy["out_of_memory"] or {}).get("operator"),
            "lazy_flushes": lazy["flushes"]["count"],
        }
    )


def replay(trace: Path, *words: str) -> dict[str, Any]:
    """Return the result of a replay on cuda."""
    command = ("-m", "et_replay", "--trace", str(trace), "--run-kernels", "--device", "cuda")
    counts = ("--warmup", "3", "--iterations", "20", "--no-operator-times")
    outcome = run(*command, *counts, *words, "--json", "-", allowed=(0, 3))
    result: dict[str, Any] = json.loads(outcome.stdout)["results"][0]
    return result


def picked(result: dict[str, Any]) -> dict[str, Any]:
    """Pick what the table shows, and what must hold."""
    keys = ("operations", "peak_allocated_bytes", "peak_reserved_bytes", "plan")
    return {
        "iteration_time_ns": statistics.median(result["iteration_time_ns"]),
        **{key: result[key] for key in keys},
    }


def run(
    *words: str, allowed: tuple[int, ...] = (0,), cores: int = CORES
) -> subprocess.CompletedProcess[str]:
    """Run Python with `words` in the folder of the project, on the quietest cores.

    Raises SystemExit for another exit code than those `allowed`, and for a process that hangs, with
    the stacks of all that it started.
    """
    os.sched_setaffinity(0, quietest_cores(cores))
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, said = process.communicate(timeout=HANGING)
        except subprocess.TimeoutExpired:
            for started in [*started_by(process.pid), process.pid]:
                os.kill(started, signal.SIGABRT)
            out, said = process.communicate()
    if process.returncode not in allowed:
        raise SystemExit(f"{shlex.join(words)} ended with {process.returncode}:\n{said}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, said)


def started_by(process: int) -> Iterator[int]:
    """Yield the processes that a process started, and those that these did."""
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        yield from started_by(int(child))
        yield int(child)


def quietest_cores(count: int) -> list[int]:
    """Return the `count` cores on which a short loop took the least time just now."""
    times = {}
    for core in ALL_CORES:
        os.sched_setaffinity(0, [core])
        times[core] = min(timeit.repeat("sum(range(20_000))", number=1, repeat=10))
    return sorted(times, key=times.__getitem__)[:count]


def table(figures: dict[str, Any]) -> str:
    """Return replays beside jobs, and allocators beside their simulation, as tables in Markdown."""
    lines = [
        "| job | mode | executed | job | replay | replay / job | peak allocated, replay / job |"
        " reserved / allocated |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for row in figures["replays"]:
        job, time, peak = row["job"], row["iteration_time_ns"], row["peak_allocated_bytes"]
        lines.append(
            f"| {row['name']} | `{row['mode']}`"
            f" | {row['operations']['executed']} of {row['operations']['total']}"
            f" | {job['iteration_time_ns'] / 1e6:.1f} ms"
            f" | {time / 1e6:.1f} ms | {time / job['iteration_time_ns']:.3f}"
            f" | {peak / job['peak_allocated_bytes']:.3f}"
            f" | {row['peak_reserved_bytes'] / peak:.3f} |"
        )
    lines += ["", "| trace | allocator | peak reserved | simulated | difference | iteration |"]
    lines += ["| --- | --- | --: | --: | --: | --: |"]
    for row in figures["allocators"]:
        reserved, simulated = row["peak_reserved_bytes"], row["simulated_peak_reserved_bytes"]
        lines.append(
            f"| {row['name']} | `{row['allocator']}` | {reserved} | {simulated}"
            f" | {reserved - simulated} | {row['iteration_time_ns'] / 1e6:.1f} ms |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
