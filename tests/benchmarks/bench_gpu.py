"""Jobs and their replays on one GPU, one after another: time and memory of a replay over the job's.

Run as `python tests/benchmarks/bench_gpu.py --output FIGURES.json [--recorded FOLDER]`. It captures
the jobs of `traces/` at larger sizes and replays each in the three modes; compares allocators; runs
replays out of memory; and times an allocation and its free. FOLDER has more traces, NAME_et.json.gz
with the job's time and peak in NAME_info.json. `--table FIGURES.json` prints the README's table.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
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
MIB = 2**20


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="where to write the figures")
    parser.add_argument("--recorded", type=Path, help="folder of traces of other jobs")
    parser.add_argument("--table", type=Path, help="figures to print as a table")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(table(json.loads(arguments.table.read_text())))
        return
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "replays": [],
        "allocators": [],
        "out_of_memory": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, trace, job in jobs(Path(folder), arguments.recorded):
            measure(figures, name, trace, job)
            arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    figures["pairs"] = json.loads(run("tests/benchmarks/bench_pluggable.py", "--json").stdout)
    arguments.output.write_text(json.dumps(figures, indent=1) + "\n")


def jobs(folder: Path, recorded: Path | None) -> Iterator[tuple[str, Path, dict[str, int]]]:
    """Yield each job's name and trace, its time in ns and its peak in bytes."""
    for name, command in JOBS.items():
        script, *sizes = shlex.split(command)
        trace = folder / f"{name}.json.gz"
        run(f"traces/{script}", "--output", str(trace), *sizes)
        truth = json.loads((folder / f"{name}.truth.json").read_text())
        keys = ("iteration_time_ns", "peak_allocated_bytes", "peak_reserved_bytes")
        yield name, trace, {key: truth[key] for key in keys}
    for info_file in sorted(recorded.glob("*_info.json")) if recorded else ():
        info = json.loads(info_file.read_text())
        name = info_file.name.removesuffix("_info.json")
        yield (
            f"{name} (recorded)",
            info_file.with_name(f"{name}_et.json.gz"),
            {
                "iteration_time_ns": round(info["iter_ms"] * 1e6),
                "peak_allocated_bytes": info["peak_alloc_1iter"],
                "peak_reserved_bytes": info["peak_reserved"],
            },
        )


def measure(figures: dict[str, Any], name: str, trace: Path, job: dict[str, int]) -> None:
    """Replay one trace in every mode, under every allocator, and with too little memory."""
    words = ["--trace", str(trace), "--run-kernels"]
    for mode in MODES:
        result = replay(*words, "--tensor-allocation-mode", mode)
        figures["replays"].append({"name": name, "job": job, "mode": mode, **picked(result)})
    compared = run("-m", "et_replay", "compare", *words[:2], "--device", "cuda", "--json", "-")
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
    peak = figures["replays"][-len(MODES)]["peak_allocated_bytes"]
    limit = [*words, "--device-memory", str(peak // MIB * MIB - 8 * MIB)]
    pre = replay(*limit)
    lazy = replay(*limit, "--tensor-allocation-mode", "lazy", "--device-memory-threshold", "0.9")
    figures["out_of_memory"].append(
        {
            "name": name,
            "pre": (pre["out_of_memory"] or {}).get("operator"),
            "lazy": (lazy["out_of_memory"] or {}).get("operator"),
            "lazy_flushes": lazy["flushes"]["count"],
        }
    )


def replay(*words: str) -> dict[str, Any]:
    """Return the result of a replay on cuda."""
    command = ("-m", "et_replay", "--device", "cuda", "--warmup", "3", "--iterations", "20")
    outcome = run(*command, *words, "--json", "-", allowed=(0, 3))
    result: dict[str, Any] = json.loads(outcome.stdout)["results"][0]
    return result


def picked(result: dict[str, Any]) -> dict[str, Any]:
    """Pick what the table shows, and what must hold."""
    keys = ("operations", "peak_allocated_bytes", "peak_reserved_bytes", "plan")
    return {
        "iteration_time_ns": statistics.median(result["iteration_time_ns"]),
        **{key: result[key] for key in keys},
    }


def run(*words: str, allowed: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Run Python with `words` in the folder of the project."""
    outcome = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if outcome.returncode not in allowed:
        raise SystemExit(f"{shlex.join(words)} ended with {outcome.returncode}:\n{outcome.stderr}")
    return outcome


def table(figures: dict[str, Any]) -> str:
    """Return the replays as a table in Markdown."""
    lines = [
        "| job | mode | ms of the job | ms of the replay | over the job's | peak allocated over the"
        " job's | reserved / allocated |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    for row in figures["replays"]:
        job = row["job"]
        lines.append(
            f"| {row['name']} | {row['mode']} | {job['iteration_time_ns'] / 1e6:.2f}"
            f" | {row['iteration_time_ns'] / 1e6:.2f}"
            f" | {row['iteration_time_ns'] / job['iteration_time_ns']:.3f}"
            f" | {row['peak_allocated_bytes'] / job['peak_allocated_bytes']:.3f}"
            f" | {row['peak_reserved_bytes'] / row['peak_allocated_bytes']:.3f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
