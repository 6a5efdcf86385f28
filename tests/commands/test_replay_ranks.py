"""Replays that make collectives: alone here, in a world of one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from trace_builder import NodeSpec, T, Typed, node, operator, write_trace

from et_replay.commands import main

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed"
)

_SCHEMA = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group,"
    " __torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True,"
    " int timeout=-1) -> (Tensor[], __torch__.torch.classes.c10d.Work)"
)


def job(ranks: int) -> list[NodeSpec]:
    """Return the nodes of a rank that computes, and adds up over all `ranks`."""
    groups = json.dumps(
        [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": ranks}]
    )
    x, y, object_ = T(5, 5, 0, 8, 4), T(6, 6, 0, 8, 4), Typed("<Object>", "Object")
    relu = "aten::relu(Tensor self) -> Tensor"
    reduced = [[y], object_, object_, None, False, -1]
    return [
        node(3, "## process_group:init ##", 2, [groups]),
        operator(10, "aten::relu", 2, [x], [y], schema=relu),
        operator(11, "c10d::allreduce_", 2, reduced, [[y], object_], schema=_SCHEMA),
    ]


def replayed(folder: Path, mode: str, ranks: int = 1, *words: str) -> dict[str, object]:
    trace = write_trace(folder / "rank-0.json", *job(ranks))
    result = folder / "result.json"
    command = ["--trace", str(trace), "--replay-mode", mode, "--device", "meta", "--quiet"]
    assert main([*command, "--json", str(result), *words]) == 0
    found: dict[str, object] = json.loads(result.read_text())["results"][0]
    return found


@pytest.mark.parametrize(("mode", "executed"), [("full", 2), ("comm", 1)])
def test_a_world_of_one_makes_its_collectives(tmp_path: Path, mode: str, executed: int) -> None:
    result = replayed(tmp_path, mode)

    assert [row["kind"] for row in result["collectives"]] == ["all_reduce"]  # type: ignore[attr-defined]
    (rank,) = result["ranks"]  # type: ignore[misc]
    assert rank["operations"]["executed"] == executed


def test_in_mode_comp_collectives_are_no_calls(tmp_path: Path) -> None:
    operations = replayed(tmp_path, "comp")["operations"]

    assert (operations["executed"], operations["substituted"]) == (1, 1)  # type: ignore[index]


def test_fewer_processes_than_ranks_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path / "rank-0.json", *job(2))

    assert main(["--trace", str(trace), "--replay-mode", "full", "--device", "meta"]) == 2
    assert "The job has 2 ranks, expected a process for each, got 1" in capsys.readouterr().err


def test_fewer_processes_than_ranks_are_had_on_request(tmp_path: Path) -> None:
    result = replayed(tmp_path, "full", 2, "--allow-other-world-size")

    (rank,) = result["ranks"]  # type: ignore[misc]
    assert any("A job of 2 ranks is replayed by 1 process" in note for note in rank["notes"])


def test_a_page_is_about_a_replay_without_collectives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path / "rank-0.json", *job(1))
    page = ["--page", str(tmp_path / "page.html")]

    assert main(["--trace", str(trace), "--replay-mode", "full", "--device", "meta", *page]) == 2
    assert "--page is about a replay by one process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--explain", "peak"], "--explain is about a replay by one process"),
        (["--memory-fraction", "0.5"], "--memory-fraction is for memory histories"),
    ],
)
def test_what_collectives_cannot_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    trace = write_trace(tmp_path / "rank-0.json", *job(1))

    assert main(["--trace", str(trace), "--replay-mode", "full", "--device", "meta", *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "event", "operator", "least"),
    [("full", 1, None, 1024), ("comm", 2, "c10d::allreduce_", 512)],
)
def test_memory_that_runs_out_is_reported_with_reasons_of_what_is_replayed(
    tmp_path: Path, mode: str, event: int, operator: str | None, least: int
) -> None:
    """In mode comm the input of the operator that computes takes no memory."""
    trace = write_trace(tmp_path / "rank-0.json", *job(1))
    words = ["--replay-mode", mode, "--device", "meta", "--device-memory", "4B", "--quiet"]
    report = tmp_path / "report.json"

    assert main(["--trace", str(trace), *words, "--json", str(report)]) == 3
    (rank,) = json.loads(report.read_text())["results"][0]["ranks"]
    assert rank["out_of_memory"]["requested_bytes"] > 4
    assert rank["explanation"]["event"] == event
    assert rank["explanation"]["failure"]["operator"] == operator
    ideal = rank["way_out"][0]
    assert (ideal["allocator"], ideal["device_memory_bytes"]) == ("ideal", least)
