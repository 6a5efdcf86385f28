"""Every collective of a trace is made with the tensors that it had: its results are right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from many_ranks.conftest import Launch
from many_ranks.every_collective import EVERY, write_job

SCRIPT = Path(__file__).with_name("known_values.py")
KINDS = {
    *("all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather"),
    *("all_gather_into_tensor", "all_gather_into_tensor_coalesced", "reduce_scatter"),
    *("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all"),
    *("all_to_all_single", "gather", "scatter", "barrier", "monitored_barrier", "send", "recv"),
}


def test_the_trace_has_every_kind() -> None:
    assert {call.name for call in EVERY} >= KINDS


@pytest.mark.parametrize(("device", "mode"), [("cpu", "full"), ("meta", "comm")])
def test_each_rank_gets_what_is_right(
    tmp_path: Path, launch: Launch, device: str, mode: str
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    calls = write_job(traces)
    words = ("--trace", str(traces), "--device", device, "--replay-mode", mode, "--warmup", "0")
    done = launch(2, str(SCRIPT), str(tmp_path), *words, "--iterations", "1", "--json", "-")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout[done.stdout.index("{") :])["results"]
    assert [rank["operations"]["substituted"] for rank in result["ranks"]] == [0, 0]
    for rank in range(2):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        given = {calls[int(node)].name: values for node, values in found.items()}
        right = {
            call.name: values
            for call in EVERY
            if (values := call.right[rank]) is not None and call.only in (None, rank)
        }
        assert {name: given.get(name) for name in right} == right
