"""What it takes to match the traces of a job's ranks: time and memory, for many files.

Run as `python tests/benchmarks/bench_matching.py [RANKS [NODES]]`; 1,024 files of 10,000 nodes by
default, of a job with data, tensor and pipeline groups. They lie in a temporary folder. The
memory is that of all processes together at its highest.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from made_rank_files import write_job
from made_ranks import job

from et_replay.ranks.files import rank_files
from et_replay.ranks.matching import match

LAYERS = 60


def resident(pid: int) -> int:
    """Return the bytes of a process and of all that it has started, shared pages shared out."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = int(line.split()[1]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return total
    return total + sum(resident(int(child)) for child in children)


class Watch(threading.Thread):
    """Notes the most memory that there was at a time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.most = max(self.most, resident(os.getpid()))


def write(folder: Path, count: int, nodes: int) -> None:
    write_job(folder, job(data=count // 16, tensor=4, pipeline=4, layers=LAYERS), nodes)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        # by another process, whose memory does not count
        writer = multiprocessing.Process(target=write, args=(Path(folder), count, nodes))
        writer.start()
        writer.join()
        watch = Watch()
        watch.start()
        start = time.perf_counter()
        found = match(rank_files(folder))
        seconds = time.perf_counter() - start
        watch.over.set()
    assert found.problem == "", found.problem
    calls = sum(kind.number for group in found.groups for kind in group.kinds.values())
    print(f"{count} files of {nodes} nodes, {len(found.groups)} groups, {calls} calls in them")
    print(f"{seconds:.1f} s, {watch.most / 2**20:.0f} MiB on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
