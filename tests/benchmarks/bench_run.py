"""Jobs of `traces/train.py` under PyTorch's allocator, and under plans made from captures of them.

Run as `python tests/benchmarks/bench_run.py --output FIGURES.json [--only JOBS…] [--turns N]` on a
GPU. Plain and planned runs take turns, each in a process of its own on the cores that are quietest
then; of each the turn that was disturbed least counts. `--table FIGURES.json` prints the README's
table. Figures are those of the iterations after the captured ones, times ns, sizes bytes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench_gpu import run

JOBS = {
    "dense": "dense",
    "resnet": "resnet --batch 16 --length 1024",
    "experts": "experts --layers 4 --vocabulary 8192",
    "lengths": "lengths",
    "generation": "generation --batch 32 --layers 4 --length 256",
    "pretrained": "pretrained --layers 6",
}
ITERATIONS = 32
CAPTURED = ("--skip", "2", "--iterations", "3")
PLAIN = ["--allocator", "torch"]
STEADY = 6
"""The iterations that are not counted: those of the capture, and what follows until all is warm."""


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(table(json.loads(arguments.table.read_text())))
        return
    if arguments.output is None:
        parser.error("expected --output or --table")
    figures: dict[str, Any] = {}
    for name in arguments.only:
        try:
            figures[name] = measured(JOBS[name], arguments.turns)
        except SystemExit as error:  # of one of its processes
            print(f"{name}: {error}", flush=True)
            continue
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
        print(table({name: figures[name]}).splitlines()[-1], flush=True)


def measured(job: str, turns: int) -> dict[str, Any]:
    """Capture, plan and run one job; what is not timed goes side by side, before what is."""
    script = ["traces/train.py", *shlex.split(job), "--size", "large"]
    mark = ["--mark", "request"] if job.startswith("generation") else []
    other = [*script, "--other-batch-at", str(STEADY + 2)]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor() as executor:
        folder = Path(name)

        def start(file: str, words: list[str], script: list[str]) -> Future[dict[str, Any]]:
            return executor.submit(served, folder / file, [*words, *mark], script)

        expanding = start("expandable", ["--allocator", "torch:expandable_segments:True"], script)
        alone = start("alone", PLAIN, other)
        capture, plan = captured(folder, script, mark)
        planned = ["--plan", str(folder / "plan.json")]
        astray = start("astray", planned, other).result()
        figures = {
            "job": job,
            "capture": capture,
            "plan": plan,
            "expandable": expanding.result(),
            "astray": {**astray, "losses_equal": astray["losses"] == alone.result()["losses"]},
        }
        runs = [
            (start("torch", PLAIN, script).result(), start("planned", planned, script).result())
            for _ in range(turns)
        ]
    first = runs[0][0]["losses"]
    torch, ours = ([pair[side] for pair in runs] for side in (0, 1))
    return {
        **figures,
        "torch": min(torch, key=lambda each: each["iteration_time_ns"]),
        "planned": min(ours, key=lambda each: each["iteration_time_ns"]),
        "times_ns": [[each["iteration_time_ns"] for each in pair] for pair in runs],
        "losses_equal": all(each["losses"] == first for each in ours),
        "losses_repeat": all(each["losses"] == first for each in torch),
    }


def captured(folder: Path, script: list[str], mark: list[str]) -> tuple[dict[str, Any], str]:
    """Capture a script and plan what was captured; return what both tell."""
    target, plan = str(folder / "captured"), str(folder / "plan.json")
    words = ("capture", "--output", target, *CAPTURED, *mark, "--", "python", *script)
    capture = run("-m", "et_replay", *words, "--iterations", str(ITERATIONS)).stdout
    made = run("-m", "et_replay", "plan", "--trace", target, "--output", plan).stdout
    return outcome(capture), made


def served(file: Path, words: list[str], script: list[str]) -> dict[str, Any]:
    """Run a script under `et_replay run` with these words; return what it and the run tell."""
    command = ("-m", "et_replay", "run", *words, "--json", str(file), "--force", "--")
    ended = run(*command, "python", *script, "--iterations", str(ITERATIONS))
    (result,) = json.loads(file.read_text())["results"]
    steady = result["iterations"][STEADY:]
    keys = ("planned", "reused", "displaced", "fallback", "unmatched")
    return {
        **outcome(ended.stdout),
        "peak_allocated_bytes": max(each["peak_allocated_bytes"] for each in steady),
        "peak_reserved_bytes": max(each["peak_reserved_bytes"] for each in steady),
        "served": [{key: each[key]["requests"] for key in keys if key in each} for each in steady],
        "said": ended.stderr.splitlines(),
    }


def outcome(printed: str) -> dict[str, Any]:
    """Read what a script printed."""
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    steady = result["iteration_time_ns"][STEADY:]
    return {"losses": result["losses"], "iteration_time_ns": statistics.median(steady)}


def table(figures: dict[str, Any]) -> str:
    """Return a line for each job, in Markdown."""
    lines = [
        "| job | time, planned / torch | reserved / allocated, torch |"
        " expandable | planned | fragmentation left | planned of all requests | losses equal |",
        "| --- | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for name, row in figures.items():
        torch, planned = row["torch"], row["planned"]
        before, after = ratio(torch), ratio(planned)
        left = (1 - 1 / after) / (1 - 1 / before) if before > 1 else 0
        requests = planned["served"][-1]
        total = requests["planned"] + requests["reused"] + requests["fallback"]
        lines.append(
            f"| {name} | {planned['iteration_time_ns'] / torch['iteration_time_ns']:.3f}"
            f" | {before:.4f} | {ratio(row['expandable']):.4f} | {after:.4f} | {left:.2f}"
            f" | {requests['planned'] / total:.3f} | {'yes' if row['losses_equal'] else 'no'} |"
        )
    return "\n".join(lines)


def ratio(row: dict[str, Any]) -> float:
    """Return reserved over allocated bytes at their peaks."""
    return float(row["peak_reserved_bytes"] / row["peak_allocated_bytes"])


if __name__ == "__main__":
    main()
