"""A process's rank is what is known best."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from et_replay.script.rank import Rank, device_of_process, find_rank, rank_of_process


def test_a_lone_process_is_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert find_rank() == Rank(0, 1, "default")


def test_the_environment_names_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert find_rank() == Rank(3, 8, "RANK")
    assert rank_of_process() == 3


def test_an_initialised_process_group_knows_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert find_rank() == Rank(0, 1, "torch.distributed")
    finally:
        dist.destroy_process_group()


def test_a_process_that_has_not_used_cuda_computes_on_the_cpu() -> None:
    assert device_of_process() == "cpu"
