"""needs_torch: what a missing and a broken torch become, and what is none of its business."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from et_replay.commands.needs_torch import needs_torch
from et_replay.errors import ReplayError


def complaint() -> str:
    """Return what becomes of an import of torch that fails."""
    with pytest.raises(ReplayError) as raised, needs_torch("A dance"):
        import torch  # noqa: F401
    assert type(raised.value) is ReplayError
    assert raised.value.exit_code == 1
    return str(raised.value)


def test_a_missing_torch_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert complaint() == "A dance needs PyTorch, which is missing: pip install torch."


@pytest.mark.parametrize("kind", ["ImportError", "OSError"])
def test_a_broken_torch_is_named_with_its_own_complaint(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "libcudart.so.12: cannot open shared object file"
    (tmp_path / "torch.py").write_text(f"raise {kind}({text!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert complaint() == f"A dance needs PyTorch, which cannot be imported: {text}."


def test_another_module_that_is_missing_is_not_blamed_on_torch() -> None:
    with pytest.raises(ModuleNotFoundError, match="et_replay_no_such"), needs_torch("A dance"):
        import et_replay_no_such  # type: ignore[import-not-found]  # noqa: F401


def test_a_torch_that_can_be_imported_is_not_spoken_of() -> None:
    with needs_torch("A dance"):
        import torch
    assert torch.__version__
