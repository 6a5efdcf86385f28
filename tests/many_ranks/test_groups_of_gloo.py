"""gloo records no group: those of a job's calls are told by the traces of all ranks together."""

from __future__ import annotations

from pathlib import Path

import pytest
from many_ranks.conftest import Launch
from many_ranks.test_training_steps import replayed

from et_replay.commands import main

RECORDED = """
import sys
import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver

job, folder = sys.argv[1:]
dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group(ranks) for ranks in {"even": [[0, 2]], "stages": [[0, 1], [2, 3]]}[job]]
mine = [group for group in groups if dist.get_rank(group) >= 0]

def reduce(size, group=None):
    dist.all_reduce(torch.ones(size), group=group)

observer = ExecutionTraceObserver().register_callback(f"{folder}/rank-{rank}.json")
observer.start()
for _ in range(2):
    if job == "even":
        reduce(64)
        for group in mine:
            reduce(32, group)
        reduce(64)
    else:
        for size in (96, 48) if rank < 2 else (80,):
            reduce(size, mine[0])
        reduce(1)
observer.stop()
observer.unregister_callback()
dist.destroy_process_group()
"""
CALLS = {  # of one rank of each group: ranks, bytes of a call, calls
    "even": {((0, 1, 2, 3), 256, 4), ((0, 2), 128, 2)},
    "stages": {
        *(((0, 1), 384, 2), ((0, 1), 192, 2)),
        *(((2, 3), 320, 2), ((0, 1, 2, 3), 4, 2)),
    },
}


@pytest.mark.parametrize("job", CALLS)
def test_calls_are_made_in_the_groups_that_they_were_in(
    tmp_path: Path, launch: Launch, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    script, folder = tmp_path / "job.py", tmp_path / "traces"
    script.write_text(RECORDED)
    folder.mkdir()
    recorded = launch(4, str(script), job, str(folder))
    assert recorded.returncode == 0, recorded.stderr

    assert main(["info", "--trace", str(folder)]) == 0
    assert "all calls fit together" in capsys.readouterr().out

    result = replayed(launch, 4, "--trace", str(folder), "--replay-mode", "full")
    rows = result["collectives"]
    assert {row["kind"] for row in rows} == {"all_reduce"}
    found = {(tuple(row["group"]), row["bytes"], row["calls"]) for row in rows}
    assert found == CALLS[job]
