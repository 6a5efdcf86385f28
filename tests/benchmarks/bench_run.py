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
from pathlib import Path
from typing import Any

from bench_gpu import run

JOBS = {
    "dense": "dense",
    "resnet": "resnet --batch 16 --length 1024",
    "experts": "experts --layers 4 --vocabulary 8192",
    "lengths": "lengths",
    "generation": "generation --batch 32 --layers 4",
    "pretrained": "pretrained --layers 6",
}
ITERATIONS = 16
CAPTURED = ("--skip", "2", "--iterations", "3")
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
        figures[name] = measured(JOBS[name], arguments.turns)
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
        print(table({name: figures[name]}).splitlines()[-1], flush=True)


def measured(job: str, turns: int) -> dict[str, Any]:
    """Capture, plan and run one job; a last run differs from its plan in one iteration."""
    script = ["traces/train.py", *shlex.split(job), "--size", "large"]
    mark = ["--mark", "request"] if job.startswith("generation") else []
    with tempfile.TemporaryDirectory() as folder:
        captured, plan = Path(folder, "captured"), Path(folder, "plan.json")
        words = ("capture", "--output", str(captured), *CAPTURED, *mark, "--", "python", *script)
        capture = outcome(run("-m", "et_replay", *words, "--iterations", str(ITERATIONS)).stdout)
        made = run(
            "-m", "et_replay", "plan", "--trace", str(captured), "--output", str(plan)
        ).stdout
        plain, planned = [], []
        for _ in range(turns):
            plain.append(served(Path(folder), ["--allocator", "torch", *mark], script))
            planned.append(served(Path(folder), ["--plan", str(plan), *mark], script))
        native = served(Path(folder), ["--allocator", "native", *mark], script)
        other = [*script, "--other-batch-at", str(STEADY + 2)]
        astray = served(Path(folder), ["--plan", str(plan), *mark], other)
        alone = served(Path(folder), ["--allocator", "torch", *mark], other)
    return {
        "job": job,
        "capture": capture,
        "plan": made,
        "torch": min(plain, key=lambda each: each["iteration_time_ns"]),
        "planned": min(planned, key=lambda each: each["iteration_time_ns"]),
        "native": native,
        "astray": {**astray, "losses_equal": astray["losses"] == alone["losses"]},
        "losses_equal": all(each["losses"] == plain[0]["losses"] for each in planned),
        "losses_repeat": all(each["losses"] == plain[0]["losses"] for each in plain),
    }


def served(folder: Path, words: list[str], script: list[str]) -> dict[str, Any]:
    """Run a script under `et_replay run` with these words; return what it and the run tell."""
    file = folder / "run.json"
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
        "| job | time, planned / torch | reserved / allocated, torch | planned |"
        " fragmentation left | planned of all requests | losses equal |",
        "| --- | --: | --: | --: | --: | --: | --- |",
    ]
    for name, row in figures.items():
        torch, planned = row["torch"], row["planned"]
        before, after = ratio(torch), ratio(planned)
        left = (1 - 1 / after) / (1 - 1 / before) if before > 1 else 0
        requests = planned["served"][-1]
        total = requests["planned"] + requests["reused"] + requests["fallback"]
        lines.append(
            f"| {name} | {planned['iteration_time_ns'] / torch['iteration_time_ns']:.3f}"
            f" | {before:.4f} | {after:.4f} | {left:.2f}"
            f" | {requests['planned'] / total:.3f} | {'yes' if row['losses_equal'] else 'no'} |"
        )
    return "\n".join(lines)


def ratio(row: dict[str, Any]) -> float:
    """Return reserved over allocated bytes at their peaks."""
    return float(row["peak_reserved_bytes"] / row["peak_allocated_bytes"])


if __name__ == "__main__":
    main()
