"""Files about one further iteration: a profile, and an execution trace that can be replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import call, floats, run

from et_replay.errors import UsageError
from et_replay.formats import open_trace
from et_replay.program import Mode, Program, build_program

SAMPLE = Path(__file__).resolve().parents[2] / "traces" / "transformer_cpu.json.gz"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let kernels run in this thread alone: what others allocate is recorded, now and then."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def two_products(folder: Path) -> Program:
    a, b, c, d = (floats(number, 64, 64) for number in (11, 12, 13, 14))
    return program_of(
        folder,
        call(10, "mm", [a, b], [c]),
        call(11, "relu", [c], [d]),
        call(12, "mm", [d, b], [floats(15, 64, 64)]),
    )


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_profile_has_a_mark_around_each_operation(tmp_path: Path, device: str) -> None:
    file = tmp_path / "profile.json"

    result = run(two_products(tmp_path), device=device, profile=file)

    events = json.loads(file.read_text())["traceEvents"]
    marks = [e for e in events if e.get("name", "").startswith("node ") and e.get("ph") == "X"]
    names = ["node 10: aten::mm", "node 11: aten::relu", "node 12: aten::mm"]
    assert [mark["name"] for mark in sorted(marks, key=lambda mark: mark["ts"])] == names
    assert any(event.get("name") == "aten::relu" for event in events)
    assert result.notes == ()


def test_files_about_iterations_are_no_measured_iterations(tmp_path: Path) -> None:
    result = run(
        two_products(tmp_path),
        iterations=2,
        profile=tmp_path / "profile.json",
        execution_trace=tmp_path / "trace.json",
    )

    assert len(result.iteration_times) == 2


@pytest.mark.parametrize("mode", [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE])
@pytest.mark.parametrize("name", ["again.json", "again.json.gz"])
def test_the_execution_trace_of_a_replay_replays_the_same(
    tmp_path: Path, name: str, mode: Mode
) -> None:
    first = run(two_products(tmp_path), mode, execution_trace=tmp_path / name)

    again = build_program(open_trace(tmp_path / name))
    second = run(again, mode)

    names = [operation.node.name for operation in again.operations]
    assert names == ["aten::mm", "aten::relu", "aten::mm"]
    assert again.window.name == "ProfilerStep#0"
    assert second.coverage.executed == 3
    assert second.memory == first.memory
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "trace.json"])


def test_the_execution_trace_of_a_sample_s_replay_replays_the_same(
    tmp_path: Path, one_thread: None
) -> None:
    program = build_program(open_trace(SAMPLE))

    first = run(program, execution_trace=tmp_path / "again.json")
    second = run(build_program(open_trace(tmp_path / "again.json")))

    assert first.coverage.executed == second.coverage.executed == 301
    # What stands in for the one `aten::empty` that was filled unseen is made without a call, and
    # one scalar is, or is not, at an address that the host gives out again.
    assert abs(second.memory.allocated - first.memory.allocated) <= 2 * 512
    assert second.memory.reserved == first.memory.reserved


def test_an_execution_trace_of_tensors_without_addresses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--execution-trace tells storages apart by their addr"):
        run(two_products(tmp_path), device="meta", execution_trace=tmp_path / "again.json")


def test_where_memory_runs_out_a_note_says_that_there_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"

    result = run(two_products(tmp_path), device="meta", device_memory=2**20, profile=file)

    assert result.out_of_memory is not None
    assert result.notes[-1] == (
        "There is no profile, as the iteration for it failed: memory ran out."
    )
    assert not file.exists()
