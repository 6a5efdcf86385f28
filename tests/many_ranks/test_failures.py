"""What ends one rank ends all of them, with one sentence and within seconds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from many_ranks.conftest import Capture, Launch, finished, start

STOPPED = """
import os, signal, sys, time
from et_replay.commands import main
from et_replay.replay.communication.exchange import Exchange

make, calls = Exchange.make, []

def stopped_at_the_fifth(self, *arguments):
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 5:
        print("stopped at", time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    make(self, *arguments)

Exchange.make = stopped_at_the_fifth
raise SystemExit(main(sys.argv[1:]))
"""

INTERRUPTED = """
import os, signal, sys, threading
from et_replay.commands import main
from et_replay.replay.communication.watch import Watch

start, told = Watch.start, {"rank": os.getpid(), "torchrun": os.getppid()}[sys.argv[1]]

def start_and_interrupt_soon(self):
    start(self)
    if os.environ["RANK"] == "1":
        threading.Timer(1, os.kill, (told, signal.SIGINT)).start()

Watch.start = start_and_interrupt_soon
raise SystemExit(main(sys.argv[2:]))
"""


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """List the sentences of et_replay, which torchrun's own words surround."""
    return re.findall(r"^et_replay: error: .*", done.stderr, re.MULTILINE)


def test_a_killed_rank_ends_the_others_with_one_sentence_in_seconds(
    tmp_path: Path, captured: Capture, launch: Launch
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(STOPPED)
    words = ("--trace", str(captured("ddp", 4)), "--device", "cpu", "--iterations", "1000")
    done = launch(4, str(script), *words)
    over = time.time()
    assert done.returncode != 0
    killed = re.search(r"stopped at ([\d.]+)", done.stdout)
    assert killed is not None
    assert over - float(killed[1]) < 15
    (sentence,) = said(done)
    assert "rank 1" in sentence.lower()
    assert done.stderr.count("Traceback") <= 1  # torchrun's own


@pytest.mark.parametrize("mode", ["full", "comm"])
def test_a_rank_out_of_memory_ends_the_others_with_one_sentence_and_a_report(
    tmp_path: Path, captured: Capture, launch: Launch, mode: str
) -> None:
    report = tmp_path / "report.json"
    words = ("--trace", str(captured("fsdp", 2)), "--device", "cpu", "--device-memory", "100KiB")
    words = (*words, "--replay-mode", mode, "--json", str(report))
    done = launch(2, "-m", "et_replay", *words, timeout=60)
    assert done.returncode != 0
    (sentence,) = said(done)
    assert re.search(r"error: Rank [01].*: Out of memory: a request of ", sentence)
    assert "What would fit 100 KiB" in done.stdout
    (result,) = json.loads(report.read_text())["results"]
    assert result["world_size"] == 2
    failed = [rank for rank in result["ranks"] if rank["out_of_memory"]]
    assert any(rank["way_out"] for rank in failed)


def test_damage_to_another_rank_than_the_first_is_a_warning(
    tmp_path: Path, captured: Capture, launch: Launch
) -> None:
    for rank in range(2):
        text = (captured("ddp", 2) / f"rank-{rank}.et.json").read_text()
        text = text[: len(text) * 2 // 3] if rank else text
        (tmp_path / f"rank-{rank}.json").write_text(text)
    words = ("--trace", str(tmp_path), "--device", "cpu", "--iterations", "1")
    done = launch(2, "-m", "et_replay", *words, "--replay-mode", "comp", timeout=60)
    assert done.returncode == 0, done.stderr
    assert "warning: Rank 1: The file breaks off: " in done.stderr
    assert "warning: The ranks replay different windows: " in done.stderr


def test_traces_that_do_not_fit_are_named_before_anything_starts(
    tmp_path: Path, captured: Capture, launch: Launch
) -> None:
    """Rank 1 lacks a collective: without the check both would wait for each other."""
    for rank in range(2):
        text = (captured("ddp", 2) / f"rank-{rank}.et.json").read_text()
        if rank == 1:
            document = json.loads(text)
            at = max(
                k for k, node in enumerate(document["nodes"]) if node["name"] == "c10d::allreduce_"
            )
            del document["nodes"][at]
            text = json.dumps(document)
        (tmp_path / f"rank-{rank}.json").write_text(text)
    done = launch(2, "-m", "et_replay", "--trace", str(tmp_path), "--device", "cpu", timeout=60)
    assert done.returncode != 0
    (sentence,) = said(done)
    assert sentence.startswith("et_replay: error: Rank 1 ")
    assert "all_reduce" in sentence
    assert "group (0, 1)" in sentence


def test_a_hang_is_told_with_what_every_rank_waits_for(
    tmp_path: Path, captured: Capture, launch: Launch
) -> None:
    script = tmp_path / "sleeps.py"
    sleeps = STOPPED.replace("os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(100)")
    script.write_text(sleeps)
    words = ("--trace", str(captured("ddp", 2)), "--device", "cpu", "--collective-timeout", "3")
    done = launch(2, str(script), *words, timeout=60)
    assert done.returncode != 0
    (sentence,) = said(done)
    assert "rank 0 waits in " in sentence
    assert "rank 1" in sentence


def test_another_number_of_processes_is_refused_unless_it_is_asked_for(
    captured: Capture, launch: Launch
) -> None:
    words = ("-m", "et_replay", "--trace", str(captured("ddp", 4)), "--device", "cpu")
    refused = launch(2, *words)
    (sentence,) = said(refused)
    assert "The job has 4 ranks" in sentence
    assert "--nproc-per-node 4" in sentence
    done = launch(2, *words, "--allow-other-world-size", "--iterations", "1")
    assert done.returncode == 0, done.stderr
    assert "times are not those of the job" in done.stderr


def test_sigterm_ends_all_ranks(
    tmp_path: Path, captured: Capture, environment: dict[str, str]
) -> None:
    script = tmp_path / "tells.py"
    script.write_text(STOPPED.replace("os.kill(os.getpid(), signal.SIGKILL)", "pass"))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = ["--trace", str(captured("ddp", 2)), "--device", "cpu", "--iterations", "100000"]
    process = start([sys.executable, *launcher, str(script), *words], environment)
    assert process.stdout is not None
    while "stopped at" not in (line := process.stdout.readline()):
        assert line, "it ended before its fifth collective"
    os.kill(process.pid, signal.SIGTERM)
    assert finished(process, 30).returncode != 0


@pytest.mark.parametrize(
    ("told", "mode"), [("rank", "full"), ("rank", "comp"), ("torchrun", "full")]
)
def test_an_interrupt_ends_all_ranks_with_one_line(
    told: str, mode: str, tmp_path: Path, captured: Capture, launch: Launch
) -> None:
    """It reaches rank 1 alone, or all of them: torchrun passes Ctrl-C on."""
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    words = ("--trace", str(captured("ddp", 2)), "--device", "cpu", "--iterations", "100000")
    done = launch(2, str(script), told, *words, "--replay-mode", mode, timeout=60)
    assert done.returncode != 0
    lines = re.findall(r"^et_replay: (?!warning: ).*", done.stderr, re.MULTILINE)
    assert lines == ["et_replay: interrupted"]
