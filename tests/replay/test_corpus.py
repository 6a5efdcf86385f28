"""Variants of operators, recorded here and now, run as recorded but for what is listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from replay.corpus import Variant, check_all

from et_replay.program import Mode

SCRIPT = Path(__file__).parents[2] / "traces" / "operators.py"
CHOSEN = (
    r"^(add|linalg\.cholesky|tensor_split|masked_scatter|addmm|nn\.functional\.embedding_bag"
    r"|_segment_reduce\.lengths|unique|ravel|full_like|_foreach_lerp)$"
    r"|^(recurrent\.(LSTM|GRU)\.plain(\.packed)?|embeddings\.bag\.(sum|sparse).*)$"
    r"|^(quantised\.(dequantize\.qint8|functional\.relu|add|dynamic\.linear))$"
    r"|^(nested\.jagged\.(linear|norm|padded)|sparse\.(given|optim)\.(mm|add|softmax|SparseAdam))$"
    r"|^(optimizers\._fused_adam_\.bfloat16.*|attention\.flash_cpu\.bfloat16)$"
    r"|^(small_types\.(cat|view|scaled).*|storages\..*|values\..*)$"
)
DEVIATIONS = {
    "the job filled its memory unseen; it gets valid values",
    "its mask is given the recorded number of true entries",
    "its result has another shape here, and is given the recorded one",
}
"""What depends on values that no trace holds."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    arguments = ["--output", str(folder), "--only", CHOSEN]
    subprocess.run([sys.executable, str(SCRIPT), *arguments], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("mode", [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE])
def test_variants_run_as_recorded_but_for_what_is_listed(recorded: Path, mode: Mode) -> None:
    variants = list(check_all(recorded, mode))

    assert len(variants) > 150
    assert remarks(variants, "error") == remarks(variants, "differs") == []
    assert remarks(variants, "substituted") == [
        (
            "quantised.dynamic.linear",
            "quantized::linear_dynamic",
            "argument W_prepack is a Object, which a trace does not hold",
        )
    ]
    others = {
        reason
        for _, _, reason in remarks(variants, "executed")
        if "no trace holds: it is 1j" not in reason and "six decimals" not in reason
    }
    assert others == DEVIATIONS


def test_every_operation_is_counted_once(recorded: Path) -> None:
    (variant,) = check_all(recorded, Mode.PRE_ALLOCATE, r"^nested\.jagged\.padded$")

    assert (variant.operations, variant.as_recorded) == (12, 11)
    assert [name for _, name, _ in variant.remarks] == ["aten::empty"]


def remarks(variants: list[Variant], wanted: str) -> list[tuple[str, str, str]]:
    return [
        (variant.name, operator, reason)
        for variant in variants
        for outcome, operator, reason in variant.remarks
        if outcome == wanted
    ]
