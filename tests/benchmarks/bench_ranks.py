"""Jobs of several ranks, each rank on a GPU: their replays, and the jobs under their plans.

Run as `python tests/benchmarks/bench_ranks.py --output FIGURES.json [--only JOBS…] [--turns N]` on
a machine with as many GPUs as --ranks (2); `--device cpu` is for trying it out. It captures jobs of
`traces/train_ranks.py`, and replays, plans and runs them; what is timed takes turns, and of each
the turn that was disturbed least counts. The job itself is timed without et_replay, and bandwidths
are held against those of `plain_collectives.py`. Then a rank is killed, and ranks run out of
memory. `--collectives` measures the times of these anew, and keeps what else FIGURES.json has.
`--table FIGURES.json` prints the README's tables. Times are ns, sizes bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_gpu import ROOT, run, started_by
from bench_run import CAPTURED, ITERATIONS, STEADY, ratio

from et_replay.formats import open_trace
from et_replay.ranks.collective import read_collectives
from et_replay.ranks.groups import process_groups
from et_replay.ranks.sizes import size_of

JOBS = {"resnet": "resnet --batch 32", "fsdp": "fsdp --deterministic"}
REPLAYED = ("full", "comm", "comp")
WITH_THEM = ("full", "comm")
"""The modes in which collectives are made."""
ROW = ("kind", "group", "dtype", "bytes")
CALLED = ("kind", "dtype", "bytes")
CORES_OF_A_RANK = 4
RUNNING = 25.0
"""Seconds after which a replay of many iterations is under way."""


def main() -> None:
    """Measure, or print what was measured."""
    arguments = parsed()
    if arguments.table is not None:
        print(tables(json.loads(arguments.table.read_text())))
        return
    figures: dict[str, Any] = {}
    if arguments.collectives and arguments.output.exists():
        figures = json.loads(arguments.output.read_text())
    for name in arguments.only:
        bench = Bench(arguments, JOBS[name])
        try:
            if arguments.collectives:
                bench.measure_collectives(figures.setdefault(name, {}))
            else:
                bench.measure(figures.setdefault(name, {}))
        except SystemExit as error:  # of one of its processes
            print(f"{name}: {error}", flush=True)
        finally:
            arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
        print(tables({name: figures[name]}), flush=True)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--collectives", action="store_true")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep what is captured, and take what is there"
    )
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.output is None and arguments.table is None:
        parser.error("expected --output or --table")
    return arguments


class Bench:
    """Measures one job; small on CPUs, where nothing runs under a plan."""

    def __init__(self, arguments: argparse.Namespace, job: str) -> None:
        self._job = job
        self._turns = arguments.turns
        self._keep = None if arguments.keep is None else arguments.keep / shlex.split(job)[0]
        self._on_gpu = arguments.device == "cuda"
        self._device = ("--device", arguments.device)
        self._cores = CORES_OF_A_RANK * arguments.ranks
        self._torchrun = (
            *("-m", "torch.distributed.run", "--standalone"),
            f"--nproc-per-node={arguments.ranks}",
        )
        size = "large" if self._on_gpu else "small"
        self._script = ("traces/train_ranks.py", *shlex.split(job), "--size", size, *self._device)
        self._script += ("--iterations", str(ITERATIONS))

    def measure(self, figures: dict[str, Any]) -> None:
        """Capture, plan, replay and run the job; what was measured stands if that breaks off."""
        figures["job"] = self._job
        with self._folder() as folder, ThreadPoolExecutor() as executor:
            plain = ("--allocator", "torch")
            unplanned = executor.submit(self._served, folder / "plain.json", *plain)
            self._capture(folder)
            self._plan(folder)
            figures["plain"] = unplanned.result()
            for key in ("jobs", "planned"):
                figures[key] = []
            replays: dict[str, list[dict[str, Any]]] = {mode: [] for mode in REPLAYED}
            for _ in range(self._turns):
                figures["jobs"].append(outcome(self._run(*self._script).stdout))
                for mode, turns in replays.items():
                    turns.append(self._replayed(folder, mode))
                    figures["replays"] = {mode: quickest(turns) for mode, turns in replays.items()}
                plan = ("--plan", str(folder / "plans"))
                figures["planned"].append(self._served(folder / "planned.json", *plan))
            self._hold(folder, figures, figures["replays"])
            killed = executor.submit(self._killed, folder)
            figures["ends"] = [self._out_of_memory(folder, replays["full"][0]), killed.result()]

    def measure_collectives(self, figures: dict[str, Any]) -> None:
        """Capture and replay the job for the times of its collectives alone."""
        with self._folder() as folder:
            if not (folder / "captured").exists():
                self._capture(folder)
            self._hold(folder, figures, {mode: self._replayed(folder, mode) for mode in WITH_THEM})

    def _hold(
        self, folder: Path, figures: dict[str, Any], replays: dict[str, dict[str, Any]]
    ) -> None:
        """Hold collectives of replays against the same alone, and in the job."""
        collectives: dict[str, Any] = {mode: replays[mode].pop("collectives") for mode in WITH_THEM}
        order = called_in_order(folder / "captured" / "rank-0.et.json")
        collectives["full"].sort(key=lambda row: order.index(tuple(row[part] for part in CALLED)))
        collectives["alone"] = self._alone(folder, collectives["full"])
        figures["collectives"] = collectives
        collectives["in_job"] = self._in_job(folder, collectives["full"])

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as name:
            folder = self._keep or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            yield folder

    def _run(self, *words: str, allowed: tuple[int, ...] = (0,)) -> Any:
        return run(*self._torchrun, *words, allowed=allowed, cores=self._cores)

    def _capture(self, folder: Path) -> None:
        target = str(folder / "captured")
        words = ("capture", "--output", target, *CAPTURED, "--", "python", *self._torchrun)
        run("-m", "et_replay", *words, *self._script, cores=self._cores)

    def _plan(self, folder: Path) -> None:
        if self._on_gpu:
            words = ("--trace", str(folder / "captured"), "--output", str(folder / "plans"))
            run("-m", "et_replay", "plan", "--share-streams", *words)

    def _words(self, folder: Path, *words: str) -> tuple[str, ...]:
        trace = ("--trace", str(folder / "captured"), *self._device)
        return ("-m", "et_replay", *trace, "--no-operator-times", "--json", "-", *words)

    def _replayed(self, folder: Path, mode: str) -> dict[str, Any]:
        counts = ("--warmup", "5", "--iterations", "100" if mode == "comm" else "20")
        done = self._run(*self._words(folder, "--replay-mode", mode, *counts))
        (result,) = json.loads(done.stdout)["results"]
        keys = ("peak_allocated_bytes", "peak_reserved_bytes", "operations", "waiting_ns")
        return {
            "ranks": [
                {
                    "iteration_time_ns": statistics.median(rank["iteration_time_ns"]),
                    **{key: rank[key] for key in keys},
                }
                for rank in result["ranks"]
            ],
            "collectives": result["collectives"],
            "said": [line for line in done.stderr.splitlines() if line.startswith("et_replay")],
        }

    def _alone(self, folder: Path, rows: list[dict[str, Any]]) -> list[float | None]:
        """Return the time of each of these collectives, which are in the job's order, alone."""
        (folder / "rows.json").write_text(json.dumps(rows))
        script = "tests/benchmarks/plain_collectives.py"
        times: list[float | None] = json.loads(
            self._run(script, str(folder / "rows.json")).stdout.splitlines()[-1]
        )
        return times

    def _in_job(self, folder: Path, rows: list[dict[str, Any]]) -> list[float | None]:
        """Return the time of a call of each of these collectives in the job itself."""
        if not self._on_gpu:
            return [None] * len(rows)
        target = folder / "in_job"
        target.mkdir(exist_ok=True)
        self._run("tests/benchmarks/job_collectives.py", str(target), *self._script)
        of_ranks = [json.loads(path.read_text()) for path in sorted(target.glob("rank-*.json"))]
        if len(set(map(len, of_ranks))) != 1:
            raise SystemExit(f"ranks recorded {[*map(len, of_ranks)]} collectives of the job")
        times: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for calls in zip(*(ranks[len(ranks) // 2 :] for ranks in of_ranks), strict=True):
            if calls[0]["kind"] != "broadcast":  # of which the job does not tell who waited
                called = tuple(calls[0][part] for part in CALLED)
                times[called].append(min(call["time_ns"] for call in calls))
        found = [times.get(tuple(row[part] for part in CALLED)) for row in rows]
        return [None if each is None else statistics.median(each) for each in found]

    def _served(self, file: Path, *words: str) -> dict[str, Any]:
        """Run the job under an allocator; return what it, and each rank's allocator, tells."""
        if not self._on_gpu:
            return {}
        command = ("-m", "et_replay", "run", *words, "--json", str(file), "--force", "--", "python")
        ended = run(*command, *self._torchrun, *self._script, cores=self._cores)
        results = json.loads(file.read_text())["results"]
        keys = ("peak_allocated_bytes", "peak_reserved_bytes")
        return {
            **outcome(ended.stdout),
            "memory": [
                {key: max(each[key] for each in result["iterations"][STEADY:]) for key in keys}
                for result in sorted(results, key=lambda each: int(each["rank"]))
            ],
            "said": re.findall(r"^et_replay: .*iterations under .*", ended.stderr, re.MULTILINE),
        }

    def _killed(self, folder: Path) -> dict[str, Any]:
        """Kill the last rank of a replay; return what is said, and how long the others live on."""
        words = self._words(folder, "--iterations", "1000000")
        with subprocess.Popen(
            [sys.executable, *self._torchrun, *words],
            cwd=ROOT,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                time.sleep(RUNNING)
                os.kill(last_rank(process.pid), signal.SIGKILL)
                begin = time.monotonic()
                _, said = process.communicate(timeout=60)
            finally:
                process.terminate()  # torchrun ends what it started
        return {"end": "killed", "seconds": time.monotonic() - begin, "said": sentences(said)}

    def _out_of_memory(self, folder: Path, replay: dict[str, Any]) -> dict[str, Any]:
        less = str(max(rank["peak_allocated_bytes"] for rank in replay["ranks"]) // 2)
        words = self._words(folder, "--iterations", "1000", "--device-memory", less)
        begin = time.monotonic()
        ended = self._run(*words, allowed=(1,))
        took = time.monotonic() - begin
        return {"end": "out of memory", "seconds": took, "said": sentences(ended.stderr)}


def called_in_order(trace: Path) -> list[tuple[str, str, int]]:
    """List the kind, type and bytes of each collective of a rank whose groups have all ranks."""
    opened = open_trace(trace)
    groups = process_groups(opened, rank=0)
    return [
        (each.kind, each.dtype, size_of(each, count := len(groups[each.group].ranks), range(count)))
        for each in read_collectives(opened, groups)
    ]


def outcome(printed: str) -> dict[str, Any]:
    """Read what the job printed: the losses and the time of an iteration, by rank."""
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    ranks = json.loads(line)["ranks"]
    return {
        "losses": [rank["losses"] for rank in ranks],
        "iteration_time_ns": [statistics.median(r["iteration_time_ns"][STEADY:]) for r in ranks],
        "peak_allocated_bytes": [rank.get("peak_allocated_bytes") for rank in ranks],
    }


def quickest(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the turn in which the slowest rank took the least time, with the times of all."""
    if not turns:
        return {}
    times = [max(rank["iteration_time_ns"] for rank in turn["ranks"]) for turn in turns]
    return {**turns[times.index(min(times))], "times_ns": times}


def last_rank(torchrun: int) -> int:
    """Return the process of the highest rank that torchrun started."""
    ranks = {}
    for child in started_by(torchrun):
        words = dict(
            each.split("=", 1)
            for each in Path(f"/proc/{child}/environ").read_text().split("\0")
            if "=" in each
        )
        if "RANK" in words:
            ranks[int(words["RANK"])] = child
    return ranks[max(ranks)]


def sentences(said: str) -> list[str]:
    """List what et_replay says among torchrun's own words."""
    return re.findall(r"^et_replay: error: .*", said, re.MULTILINE)


def tables(figures: dict[str, Any]) -> str:
    """Return a line for each rank of each job, and one for each of its collectives, in Markdown."""
    lines = [
        "| job | rank | iteration | full / job | comm | comp | peak allocated, full / job |"
        " reserved / allocated: torch | planned | time, planned / job | losses equal |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for name, row in figures.items():
        ranks = len(row["jobs"][0]["losses"]) if "jobs" in row else 0
        lines += [job_line(name, row, rank) for rank in range(ranks)]
    lines += [
        "",
        "| job | collective | type | bytes | calls | alone | comm / alone | full / alone |"
        " job / alone |",
        "| --- | --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for name, row in figures.items():
        lines += collective_lines(name, row)
    lines += ["", "| job | end | seconds | said |", "| --- | --- | --: | --- |"]
    for name, row in figures.items():
        for end in row.get("ends", ()):
            said = " ".join(end["said"])
            lines.append(f"| {name} | {end['end']} | {end['seconds']:.1f} | {said} |")
    return "\n".join(lines)


def job_line(name: str, row: dict[str, Any], rank: int) -> str:
    """Return what is known of one rank."""
    job = min(each["iteration_time_ns"][rank] for each in row["jobs"])
    cells = [name, str(rank), f"{job / 1e6:.1f} ms"]
    replays = [row["replays"][mode]["ranks"][rank] for mode in REPLAYED]
    cells += [f"{replay['iteration_time_ns'] / job:.3f}" for replay in replays]
    if row["plain"]:
        plain, planned = row["plain"]["memory"][rank], row["planned"][0]["memory"][rank]
        served = min(each["iteration_time_ns"][rank] for each in row["planned"])
        losses = [each["losses"][rank] for each in (*row["jobs"], *row["planned"])]
        cells += [
            f"{replays[0]['peak_allocated_bytes'] / plain['peak_allocated_bytes']:.4f}",
            f"{ratio(plain):.4f}",
            f"{ratio(planned):.4f}",
            f"{served / job:.3f}",
            "yes" if all(each == losses[0] for each in losses) else "no",
        ]
    return f"| {' | '.join(cells)} |"


def collective_lines(name: str, row: dict[str, Any]) -> list[str]:
    """Return the times of each kind and size over that of the same alone."""
    lines = []
    measured = row["collectives"]
    in_comm = {key(each): each for each in measured["comm"]}
    in_job = measured.get("in_job", [None] * len(measured["full"]))
    for each, alone, of_job in zip(measured["full"], measured["alone"], in_job, strict=True):
        comm = in_comm.get(key(each))
        if alone is None or comm is None:
            continue
        cells = [name, each["kind"], each["dtype"], str(each["bytes"]), str(each["calls"])]
        cells.append(f"{alone / 1e3:.1f} us")
        times = comm["median_time_ns"], each["median_time_ns"], of_job
        cells += ["-" if time is None else f"{time / alone:.3f}" for time in times]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Name a row of collectives."""
    return tuple(tuple(row[part]) if part == "group" else row[part] for part in ROW)


if __name__ == "__main__":
    main()
