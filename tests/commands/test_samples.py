"""The bundled traces replay from the command line, in both modes, with nothing left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_replay.commands import main

TRACES = Path(__file__).resolve().parents[2] / "traces"


def replay(trace: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    words = ["--device", "meta", "--warmup", "0", "--iterations", "1", "--json", "-"]
    assert main(["--trace", str(trace), "--tensor-allocation-mode", mode, *words]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.name)
def test_a_bundled_trace_replays_whole_and_lazy_needs_no_more_memory(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pre, lazy = replay(trace, "pre", capsys), replay(trace, "lazy", capsys)
    for result in (pre, lazy):
        assert result["operations"]["skipped"] == 0
    assert lazy["peak_allocated_bytes"] <= pre["peak_allocated_bytes"]
