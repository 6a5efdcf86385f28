"""Settings of PyTorch are read, and in force for as long as is asked."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from et_replay.errors import TraceError
from et_replay.torch_settings import as_code, checked, in_force, torch_settings

DEFAULTS: Mapping[str, bool | str] = {
    "float32_matmul_precision": "highest",
    "deterministic_debug_mode": "default",
    "backends.cudnn.allow_tf32": True,
    "backends.cudnn.benchmark": False,
}
MATMUL = "backends.cuda.matmul.fp32_precision"
NEWER = hasattr(torch.backends.cuda.matmul, "fp32_precision")
needs_newer = pytest.mark.skipif(not NEWER, reason="torch 2.9 has this setting first")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave all as it was."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    with in_force(torch_settings()):
        yield


def told() -> dict[str, object]:
    return {name: torch_settings().get(name) for name in DEFAULTS}


def test_they_are_those_of_torch() -> None:
    assert told() == DEFAULTS
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert told() == {**DEFAULTS, "deterministic_debug_mode": "warn"}


def test_they_are_in_force_until_the_end() -> None:
    other = {"deterministic_debug_mode": "error", "backends.cudnn.benchmark": True}
    with in_force({**DEFAULTS, **other}) as job:
        assert job.changed == other
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.benchmark is True
    assert told() == DEFAULTS


@needs_newer
def test_the_older_way_sets_what_the_newer_one_tells() -> None:
    before = torch_settings()[MATMUL]
    assert before in ("none", "ieee")
    with in_force({"float32_matmul_precision": "high"}):
        assert torch_settings()[MATMUL] == "tf32"
    assert torch_settings()[MATMUL] == before


@needs_newer
def test_what_decides_is_told_where_both_ways_are_used() -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    asked = torch_settings()
    assert asked[MATMUL] == "ieee"
    torch.set_float32_matmul_precision("medium")
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    with in_force(asked) as job:
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert job.changed[MATMUL] == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


@needs_newer
def test_it_is_set_where_the_older_way_cannot_tell() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert "float32_matmul_precision" not in torch_settings()
    with in_force({"float32_matmul_precision": "highest", MATMUL: "ieee"}):
        assert torch_settings()[MATMUL] == "ieee"
    assert torch_settings()[MATMUL] == "tf32"


@needs_newer
@pytest.mark.parametrize("seed", range(200))
def test_any_mixture_is_had_again(seed: int) -> None:
    """A job, whatever it sets by whichever way, and a replay that begins in another state."""
    draw = random.Random(seed)

    def mix() -> dict[str, bool | str]:
        for _ in range(draw.randrange(6)):
            owner = draw.choice(["", "cuda.matmul.", "cudnn.", "cudnn.conv.", "mkldnn.rnn."])
            way = draw.choice(["older", f"{owner}fp32_precision"])
            if way == "older":
                torch.set_float32_matmul_precision(draw.choice(["highest", "high", "medium"]))
                continue
            *path, name = way.split(".")
            module: Any = torch.backends
            for part in path:
                module = getattr(module, part)
            setattr(module, name, draw.choice(["none", "ieee", "tf32"]))
        return torch_settings()

    asked = mix()
    before = mix()
    with in_force(asked):
        assert {**torch_settings(), **asked} == torch_settings()
    exec("\n".join(as_code(asked)), {"torch": torch, "os": os})
    assert {**torch_settings(), **asked} == torch_settings()
    with in_force(before):
        pass
    exec("\n".join(as_code(before)), {"torch": torch, "os": os})
    after = torch_settings()
    assert {name: after[name] for name in before if "fp32" in name} == {
        name: value for name, value in before.items() if "fp32" in name
    }


def test_the_workspace_of_cublas_stays() -> None:
    with in_force({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}) as job:
        assert job.changed == {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    assert torch_settings()["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_what_this_torch_does_not_have_is_named() -> None:
    with in_force({"backends.cudnn.of_tomorrow": True, "x" * 1000: True}) as job:
        assert job.changed == {}
    (note,) = job.notes()
    assert note.endswith(f"not in force: 'backends.cudnn.of_tomorrow', '{'x' * 39}....")
    with in_force({f"a{number}": True for number in range(20_000)}) as job:
        (note,) = job.notes()
    assert note.endswith("not in force: 'a0', 'a1', 'a2', 'a3', 'a4' and 19995 more.")


def test_they_are_code() -> None:
    settings = {"backends.cudnn.benchmark": True, "float32_matmul_precision": "highest"}
    assert as_code({**settings, "unknown": "import os", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}) == [
        "os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':16:8'",
        "torch.set_float32_matmul_precision('highest')",
        "torch.backends.cudnn.benchmark = True",
    ]


@pytest.mark.parametrize(
    ("name", "value", "told", "expected"),
    [
        ("float32_matmul_precision", "ultra", "'ultra'", "one of highest, high, medium"),
        ("float32_matmul_precision", "x" * 100_000, f"'{'x' * 39}...", "one of highest, high"),
        ("float32_matmul_precision", None, "None", "one of highest, high, medium"),
        ("float32_matmul_precision", {}, "{}", "one of highest, high, medium"),
        ("deterministic_debug_mode", 2, "2", "one of default, warn, error"),
        ("backends.cudnn.benchmark", 1, "1", "one of False, True"),
        ("backends.cudnn.benchmark", "often", "'often'", "one of False, True"),
        ("CUBLAS_WORKSPACE_CONFIG", "a\0b", "'a\\x00b'", "one like :4096:8"),
        ("CUBLAS_WORKSPACE_CONFIG", True, "True", "one like :4096:8"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: object, told: str, expected: str) -> None:
    with pytest.raises(TraceError) as error:
        checked({name: value}, "rank-0.run.jsonl")
    assert str(error.value).startswith(
        f"rank-0.run.jsonl tells {told} as PyTorch's setting {name}, expected {expected}"
    )


@pytest.mark.parametrize("value", [None, [], "high", 3])
def test_no_table_is_refused(value: object) -> None:
    with pytest.raises(TraceError, match="expected a table of them"):
        checked(value, "rank-0.run.jsonl")
