"""What cannot be served on a GPU, and a GPU that fails, are one sentence each; told without one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import call, floats

from et_replay import pluggable
from et_replay.errors import ReplayError, UsageError
from et_replay.program import Program
from et_replay.replay import engine
from et_replay.replay.memory import MeasuredMemory
from et_replay.replay.options import ReplayOptions
from et_replay.replay.served_memory import ServedMemory
from et_replay.replay.target import Target

CUDA = Target(torch.device("cuda", 0), "cuda")


def program(folder: Path) -> Program:
    return program_of(folder, call(10, "relu", [floats(1, 4)], [floats(2, 4)]))


def test_a_gpu_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("CUDA error: device-side assert triggered\nMuch more.")

    monkeypatch.setattr(engine, "choose_target", lambda *_: CUDA)
    monkeypatch.setattr(engine, "_Replay", fail)

    with pytest.raises(ReplayError) as caught:
        engine.replay(program(tmp_path), ReplayOptions(device="cuda"))

    assert str(caught.value) == (
        "cuda:0 failed: CUDA error: device-side assert triggered; with CUDA_LAUNCH_BLOCKING=1 in"
        " the environment it fails at the operation that is the cause."
    )


def test_a_failed_gpu_does_not_hide_its_failure_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fail)
    memory = MeasuredMemory.__new__(MeasuredMemory)
    memory.device = CUDA.device

    memory.stop()


def test_without_a_compiler_running_out_of_memory_could_not_be_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pluggable, "out_of_memory_thrower", lambda: None)

    with pytest.raises(UsageError, match=r"stalloc on cuda:0 needs a C\+\+ compiler"):
        ServedMemory(CUDA, "stalloc", None)

    assert not pluggable.is_installed()


@pytest.mark.parametrize("allocator", [None, "torch", "torch:expandable_segments:True"])
def test_after_another_allocator_torchs_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocator: str | None
) -> None:
    monkeypatch.setattr(engine, "choose_target", lambda *_: CUDA)
    monkeypatch.setattr(pluggable, "is_installed", lambda: True)

    with pytest.raises(UsageError, match="replay with it in a process of its own"):
        engine.replay(program(tmp_path), ReplayOptions(device="cuda", allocator=allocator))
