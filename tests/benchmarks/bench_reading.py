"""Reading a trace of about 500 MB: time and peak memory of `json.load` and of `open_trace`.

Run as `python tests/benchmarks/bench_reading.py [--trace FILE] [--size MB] [--repeats N]`. The
trace is a real one repeated, with ids shifted from copy to copy, so that nodes, parents, tensors
and storages stay consistent. Each measurement is a fresh process; they take turns.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from et_replay.units import format_bytes

DEFAULT = Path(__file__).resolve().parents[2] / "../shared/data/traces/param_gpt2_1.1.0.json.gz"
END = b"\n  ],\n"
SHIFTED = re.compile(
    rb'(?P<key>"(?:id|ctrl_deps)": |"fw_parent", "type": "uint64", "value": )(?P<id>\d+)'
    rb"|\[(?P<tensor>\d+),(?P<storage>\d+)(?P<rest>(?:,\d+){3},\")"
)


def shifted(nodes: bytes, by: int) -> bytes:
    """Add a number to every id of nodes, tensors and storages; 0 and the root stay."""

    def move(number: bytes) -> bytes:
        return b"%d" % (int(number) + by if int(number) > 1 else int(number))

    def replace(match: re.Match[bytes]) -> bytes:
        if match["key"]:
            return match["key"] + move(match["id"])
        return b"[%b,%b%b" % (move(match["tensor"]), move(match["storage"]), match["rest"])

    return SHIFTED.sub(replace, nodes)


def write_repeated(trace: Path, size: int, target: Path) -> int:
    """Repeat a trace in the observer's text form up to about `size` bytes; return the copies."""
    text = gzip.decompress(trace.read_bytes())
    begin, end = text.index(b'"nodes": [') + len(b'"nodes": ['), text.rindex(END)
    root = text.rindex(b",\n    {", begin, end)  # the observer writes the root last
    nodes = text[begin:root]
    step = max(int(match["id"] or match["tensor"]) for match in SHIFTED.finditer(nodes))
    copies = max(1, size // len(nodes))
    with target.open("wb") as file:
        file.write(text[:begin])
        for copy in range(copies):
            file.write((b"," if copy else b"") + shifted(nodes, copy * step))
        file.write(text[root:])
    return copies


def measured(what: str, path: Path) -> None:
    """Do one thing in this process; print its seconds, peak bytes and the nodes it found."""
    if what == "json.load":
        start = time.perf_counter()
        with path.open(encoding="utf-8") as file:
            count = len(json.load(file)["nodes"])
    else:
        from et_replay.formats import open_trace

        build = importlib.import_module("et_replay.program") if what == "with program" else None
        start = time.perf_counter()
        trace = open_trace(path)
        count = len(trace)
        if build is not None:
            build.build_program(trace)
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
    print(json.dumps([seconds, peak, count]))


def run(what: str, path: Path) -> tuple[float, int, int]:
    """Measure one thing in a fresh process."""
    command = [sys.executable, __file__, "--measure", what, str(path)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak, count = json.loads(answer)
    return seconds, peak, count


def can_build() -> bool:
    """Tell whether this checkout can build a program."""
    try:
        from et_replay.program import build_program
    except ImportError:
        return False
    return callable(build_program)


def compare(path: Path, repeats: int) -> None:
    """Print medians, and what each is against `json.load`."""
    kinds = ["json.load", "open_trace", *(["with program"] if can_build() else [])]
    results: dict[str, list[tuple[float, int, int]]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind in kinds:
            results[kind].append(run(kind, path))
    assert len({count for runs in results.values() for _, _, count in runs}) == 1
    print(f"{'':14}{'seconds':>9}{'speed':>9}{'peak':>11}{'share':>8}")
    first: tuple[float, float] | None = None
    for kind, runs in results.items():
        seconds = statistics.median(run[0] for run in runs)
        peak = statistics.median(run[1] for run in runs)
        first = first or (seconds, peak)
        ratios = f"{first[0] / seconds:>8.1f}x", f"{peak / first[1]:>8.2f}"
        print(f"{kind:14}{seconds:>9.2f}{ratios[0]}{format_bytes(int(peak)):>11}{ratios[1]}")


def main() -> None:
    """Make the file, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=DEFAULT, metavar="FILE")
    parser.add_argument("--size", type=int, default=500, metavar="MB")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measured(arguments.measure[0], Path(arguments.measure[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repeated.json"
        copies = write_repeated(arguments.trace, arguments.size * 1_000_000, path)
        print(f"{arguments.trace.name}, {copies} times: {format_bytes(path.stat().st_size)}")
        compare(path, arguments.repeats)


if __name__ == "__main__":
    main()
