"""Settings of PyTorch are read, and in force for as long as is asked."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from et_replay.errors import ReplayError
from et_replay.torch_settings import in_force, torch_settings

DEFAULTS = {
    "float32_matmul_precision": "highest",
    "deterministic_debug_mode": 0,
    "backends.cudnn.allow_tf32": True,
    "backends.cudnn.benchmark": False,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    yield


def told() -> dict[str, object]:
    return {name: torch_settings()[name] for name in DEFAULTS}


def test_they_are_those_of_torch() -> None:
    assert told() == DEFAULTS
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert told() == {**DEFAULTS, "deterministic_debug_mode": 1}
    finally:
        torch.use_deterministic_algorithms(False)


def test_they_are_in_force_until_the_end() -> None:
    asked = {**DEFAULTS, "float32_matmul_precision": "medium", "backends.cudnn.benchmark": True}
    with in_force(asked) as changed:
        assert changed == {"float32_matmul_precision": "medium", "backends.cudnn.benchmark": True}
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cudnn.benchmark is True
    assert told() == DEFAULTS


def test_the_workspace_of_cublas_stays() -> None:
    with in_force({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}) as changed:
        assert changed == {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    assert torch_settings()["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_what_this_torch_does_not_know_is_left() -> None:
    with in_force({"backends.cudnn.of_tomorrow": True}) as changed:
        assert changed == {}


def test_what_torch_refuses_is_one_sentence_and_the_others_are_as_before() -> None:
    asked = {"float32_matmul_precision": "high", "backends.cudnn.benchmark": "often"}
    with (
        pytest.raises(
            ReplayError, match=r"backends\.cudnn\.benchmark = 'often' of the captured run"
        ),
        in_force(asked),
    ):
        pass
    assert told() == DEFAULTS
