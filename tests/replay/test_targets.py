"""Devices: where a replay runs, and where recorded tensors and device arguments go."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import call, floats, run
from trace_builder import Typed

from et_replay.errors import UsageError
from et_replay.program import Mode
from et_replay.replay.target import Target, choose_target

META, CPU = torch.device("meta"), torch.device("cpu")


@pytest.mark.parametrize(
    ("target", "recorded", "place"),
    [
        (Target(torch.device("cuda", 1), "cuda"), "cuda:3", torch.device("cuda", 1)),
        (Target(torch.device("cuda", 1), "cuda"), "cpu", CPU),
        (Target(torch.device("cuda", 1), "cuda"), "meta", META),
        (Target(torch.device("cuda", 0), "cpu"), "cpu", torch.device("cuda", 0)),
        (Target(torch.device("cuda", 0), "hpu"), "hpu:2", torch.device("cuda", 0)),
        (Target(CPU, "cuda"), "cuda:3", CPU),
        (Target(CPU, "cuda"), "cpu", CPU),
        (Target(META, "cuda"), "cuda:3", META),
        (Target(META, "cuda"), "cpu", META),
    ],
)
def test_every_recorded_accelerator_becomes_the_chosen_device(
    target: Target, recorded: str, place: torch.device
) -> None:
    assert target.place(recorded) == place


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("mode", [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE])
def test_tensors_and_device_arguments_of_another_rank_replay_here(
    tmp_path: Path, mode: Mode, device: str
) -> None:
    third = Typed("cuda:3", "Device")
    made, host, copied, total = (
        floats(number, 64, device=place)
        for number, place in ((11, "cuda:3"), (12, "cpu"), (13, "cuda:3"), (14, "cuda:3"))
    )
    program = program_of(
        tmp_path,
        call(10, "zeros", [[64], 6, None, third, False], [made]),
        call(11, "_to_copy", [host, 6, None, third, None, False, None], [copied]),
        call(12, "add.Tensor", [made, copied, 1], [total]),
    )

    result = run(program, mode, device)

    assert (result.coverage.executed, result.coverage.reasons) == (3, [])
    assert result.memory.allocated == 3 * 512


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_several_accelerators_become_one_and_the_program_says_so(
    tmp_path: Path, device: str
) -> None:
    program = program_of(
        tmp_path,
        call(10, "relu", [floats(11, 128)], [floats(13, 128)]),
        call(
            11,
            "relu",
            [floats(12, 128, device="cuda:1")],
            [floats(14, 128, device="cuda:1")],
        ),
    )

    assert run(program, device=device).memory.allocated == 3 * 512
    assert program.notes == (
        "The trace uses 2 accelerators (cuda:0, cuda:1); all of them are mapped to one device,"
        " whose memory holds the sum.",
    )


@pytest.mark.parametrize(("device", "simulated"), [("cpu", True), ("meta", True)])
def test_a_result_names_its_device_and_whether_memory_is_simulated(
    tmp_path: Path, device: str, simulated: bool
) -> None:
    result = run(program_of(tmp_path, call(10, "relu_", [floats(11, 4)], [])), device=device)

    assert (result.device, result.simulated) == (device, simulated)
    assert result.device_memory == 80 * 2**30


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_target("auto", "cuda") == Target(CPU, "cuda")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_target("auto", "cuda") == Target(torch.device("cuda", 0), "cuda")
    assert choose_target("cuda:1", "cuda") == Target(torch.device("cuda", 1), "cuda")


@pytest.mark.parametrize("text", ["gpu", "", "cuda:x", "cuda:-2", "xpu", "mps", "a b"])
def test_a_device_that_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_target(text, "cuda")

    assert str(caught.value) == (
        f"Expected a device such as auto, cuda, cuda:1, cpu or meta, got {text!r}."
    )


def test_a_gpu_that_is_not_there_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(UsageError) as caught:
        choose_target("cuda", "cuda")

    assert str(caught.value) == (
        "--device cuda needs a CUDA device and there is none; use --device cpu or --device meta."
    )


def test_an_ordinal_beyond_the_last_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    with pytest.raises(UsageError, match="--device cuda:2 does not exist: there are 2 CUDA device"):
        choose_target("cuda:2", "cuda")
