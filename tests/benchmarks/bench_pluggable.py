"""An allocation and its free under torch on a GPU: our allocators over torch's own, as ratios.

Run as `python tests/benchmarks/bench_pluggable.py [--json]`. Each allocator runs in a process of
its own, in turns; of each the turn that was disturbed least counts. `among` is beside 2,000 live
tensors; `planned` the pair through the planned allocator, with the call that names the storage.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[1] / "pluggable_programs.py"
TURNS = 5
ALLOCATORS = ("torch", "native", "expandable")


def run(allocator: str, program: str) -> dict[str, dict[str, float]]:
    words = [sys.executable, str(PROGRAMS), allocator, program]
    outcome = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(outcome.stdout.splitlines()[-1])


def main() -> None:
    """Measure in turns, and print each one's best, in ns and over torch's."""
    times: dict[tuple[str, str, str], list[float]] = {}
    planned = []
    for _ in range(TURNS):
        for allocator in ALLOCATORS:
            for case, sizes in run(allocator, "cost").items():
                for size, nanoseconds in sizes.items():
                    times.setdefault((case, size, allocator), []).append(nanoseconds)
        planned.append(run("stalloc", "planned")["pair_ns"])
    best = {key: min(values) for key, values in times.items()}
    alone = best["alone_ns", "4096", "torch"]
    pair = min(planned)
    if sys.argv[1:] == ["--json"]:
        rows = {" ".join(key): ns for key, ns in best.items()}
        print(json.dumps({**rows, "planned_ns 1048576 stalloc": pair}))
        return
    for case, size, allocator in best:
        ours, torchs = best[case, size, allocator], best[case, size, "torch"]
        print(f"{case:10} {size:>10} {allocator:12} {ours:8.0f} ns {ours / torchs:6.3f} of torch's")
    print(f"{'planned':10} {'1048576':>10} {'stalloc':12} {pair:8.0f} ns {pair / alone:6.3f}")


if __name__ == "__main__":
    main()
