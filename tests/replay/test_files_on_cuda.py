"""Files about a replay on a GPU: a profile with its kernels, a trace, a dump that measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import call, floats, run

from et_replay.formats import open_trace
from et_replay.program import Program, build_program
from et_replay.replay.dump import dump
from et_replay.replay.options import ReplayOptions

pytestmark = pytest.mark.cuda


def product(folder: Path) -> Program:
    a, b, c = (floats(number, 256, 256) for number in (11, 12, 13))
    return program_of(
        folder, call(10, "mm", [a, b], [c]), call(11, "relu", [c], [floats(14, 256, 256)])
    )


def test_a_profile_holds_the_kernels_of_the_iteration(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"

    result = run(product(tmp_path), device="cuda", warmup=1, profile=file)

    events = json.loads(file.read_text())["traceEvents"]
    assert result.notes == ()
    assert any(event.get("cat") == "kernel" for event in events)
    assert any(event.get("name") == "node 10: aten::mm" for event in events)


def test_the_execution_trace_of_a_replay_replays_the_same(tmp_path: Path) -> None:
    first = run(product(tmp_path), device="cuda", execution_trace=tmp_path / "again.json")

    second = run(build_program(open_trace(tmp_path / "again.json")), device="cuda")

    assert first.coverage.executed == second.coverage.executed == 2
    assert second.memory.allocated == first.memory.allocated


def test_a_dump_measures_memory(tmp_path: Path) -> None:
    file = tmp_path / "dumped_replay.py"
    text, _ = dump(product(tmp_path), ReplayOptions(device="cuda"))
    file.write_text(text)

    done = subprocess.run(
        [sys.executable, "-I", str(file)], capture_output=True, text=True, check=True
    )

    assert "peak memory: " in done.stdout
    assert done.stdout.splitlines()[-1] == "result: torch.float32, (256, 256)"
