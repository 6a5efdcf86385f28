"""Ranks that differ: in their plans, in what they have to do, and in how they were started."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from many_ranks.conftest import Launch
from trace_builder import NodeSpec, T, Typed, node, operator, write_trace

from et_replay.commands import main

OTHERWISE = """
import os, sys
from et_replay.commands import main

own = {own}.get(os.environ["RANK"], [])
raise SystemExit(main([*sys.argv[1:], *own]))
"""
"""A script that replays with the words of its rank, as two hosts would."""
_REDUCE = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group,"
    " __torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True,"
    " int timeout=-1) -> (Tensor[], __torch__.torch.classes.c10d.Work)"
)
GROUPS = [
    {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 3, "group_count": 2},
    {"pg_name": "1", "pg_desc": "pair", "ranks": [0, 1], "group_size": 2, "group_count": 2},
]


def pair_of_three(folder: Path, last: str) -> Path:
    """Write a job whose ranks 0 and 1 compute and reduce, and rank 2 only computes, or idles."""
    x, y, object_ = T(5, 5, 0, 8, 4), T(6, 6, 0, 8, 4), Typed("<Object>", "Object")
    folder.mkdir(exist_ok=True)
    relu = operator(10, "aten::relu", 2, [x], [y], schema="aten::relu(Tensor self) -> Tensor")
    for rank in range(3):
        reduced = ([y], object_, object_, None, False, -1)
        record = ([[y], (0, False), ("1", "pair"), rank, "allreduce", [], [], 0, 1, 2, True], [[y]])
        nodes: list[NodeSpec] = [
            relu,
            operator(11, "c10d::allreduce_", 2, list(reduced), [[y], object_], schema=_REDUCE),
            node(12, "record_param_comms", 11, *record),
        ]
        if rank == 2:
            nodes = [relu] if last == "computes" else []
        groups = node(3, "## process_group:init ##", 2, [json.dumps(GROUPS)])
        write_trace(folder / f"rank-{rank}.json", groups, *nodes)
    return folder


def of_ranks(report: Path) -> list[tuple[int, int]]:
    """List what each rank executed and how many bytes it held at its peak."""
    (result,) = json.loads(report.read_text())["results"]
    return [
        (rank["operations"]["executed"], rank["peak_allocated_bytes"]) for rank in result["ranks"]
    ]


@pytest.mark.parametrize(
    ("last", "mode", "expected"),
    [
        ("computes", "full", [(2, 1024), (2, 1024), (1, 1024)]),
        ("computes", "comm", [(1, 512), (1, 512), (0, 0)]),
        ("idles", "full", [(2, 1024), (2, 1024), (0, 0)]),
        ("idles", "comp", [(1, 1024), (1, 1024), (0, 0)]),
    ],
)
def test_a_rank_with_nothing_to_do_takes_part_with_nothing(
    tmp_path: Path, launch: Launch, last: str, mode: str, expected: list[tuple[int, int]]
) -> None:
    folder, report = pair_of_three(tmp_path, last), tmp_path / "report.json"
    words = ("--trace", str(folder), "--device", "cpu", "--replay-mode", mode)
    done = launch(3, "-m", "et_replay", *words, "--json", str(report), timeout=60)
    assert done.returncode == 0, done.stderr
    assert of_ranks(report) == expected


def test_a_job_without_a_collective_has_nothing_for_mode_comm(
    tmp_path: Path, launch: Launch
) -> None:
    folder = pair_of_three(tmp_path, "computes")
    words = ("--trace", str(folder), "--device", "cpu", "--replay-mode", "comm")
    done = launch(3, "-m", "et_replay", *words, "--window", "10:11", timeout=60)
    (sentence,) = re.findall(r"^et_replay: error: .*", done.stderr, re.MULTILINE)
    assert sentence.endswith(
        "has no collective in window 10:11, so there is nothing to replay in mode comm."
    )


def test_each_rank_is_served_its_own_plan_of_a_folder(tmp_path: Path, launch: Launch) -> None:
    folder, plans = pair_of_three(tmp_path / "job", "computes"), tmp_path / "plans"
    report = tmp_path / "report.json"
    assert main(["plan", "--trace", str(folder), "--output", str(plans), "--quiet"]) == 0
    words = ("--trace", str(folder), "--device", "cpu", "--tensor-allocation-mode", "stalloc")
    words = ("-m", "et_replay", *words, "--plan", str(plans), "--json", str(report))
    done = launch(3, *words, timeout=60)
    assert done.returncode == 0, done.stderr
    assert of_ranks(report) == [(2, 1024), (2, 1024), (1, 1024)]

    (plans / "rank-1.plan.json").unlink()
    refused = launch(3, *words, "--force", timeout=60)
    assert refused.returncode != 0
    assert f"Rank 1: The folder {plans} holds no rank-1.plan.json" in refused.stderr


@pytest.mark.parametrize(
    ("own", "difference"),
    [
        (
            {"1": ["--replay-mode", "comm"]},
            "--replay-mode is full in rank 0 and comm in rank 1",
        ),
        ({"0": ["--iterations", "5"]}, "--iterations is 5 in rank 0 and 3 in rank 1"),
        ({"2": ["--window", "10:11"]}, "--window is not given in rank 0 and 10:11 in rank 2"),
    ],
)
def test_processes_with_different_options_are_refused_at_once(
    tmp_path: Path, launch: Launch, own: dict[str, list[str]], difference: str
) -> None:
    folder, script = pair_of_three(tmp_path / "job", "computes"), tmp_path / "otherwise.py"
    script.write_text(OTHERWISE.format(own=own))
    begin = time.monotonic()
    done = launch(3, str(script), "--trace", str(folder), "--device", "cpu", timeout=60)
    assert time.monotonic() - begin < 30
    assert re.findall(r"^et_replay: error: .*", done.stderr, re.MULTILINE) == [
        f"et_replay: error: The processes have different options: {difference}, expected the same"
        " in all."
    ]


def test_what_is_a_process_s_own_may_differ(tmp_path: Path, launch: Launch) -> None:
    folder, script = pair_of_three(tmp_path / "job", "computes"), tmp_path / "otherwise.py"
    own = {"0": ["--json", str(tmp_path / "report.json")], "1": ["--replay-mode", "full"]}
    script.write_text(OTHERWISE.format(own=own))
    done = launch(3, str(script), "--trace", str(folder), "--device", "cpu", timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_entry_of_the_configuration_is_named_where_it_leaves_nothing_out_in_any_rank(
    tmp_path: Path, launch: Launch
) -> None:
    folder, config = pair_of_three(tmp_path / "job", "computes"), tmp_path / "config.json"
    entries = [{"operator": name, "reason": "x"} for name in ("c10d::*", "nix::*")]
    config.write_text(json.dumps({"skip": entries}))
    words = ("--trace", str(folder), "--cpu", "--replay-mode", "comp", "--config", str(config))
    done = launch(3, "-m", "et_replay", *words, "--run-kernels", timeout=60)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("warning: --")] == [
        "warning: --run-kernels is for a replay on cuda, and means nothing on cpu.",
        f"warning: --config {config}: nix::* at `$.skip[1]` matches no operation of this replay,"
        " so it leaves nothing out.",
    ]


def test_a_short_flag_is_the_same_as_what_it_is_short_for_in_other_ranks(
    tmp_path: Path, launch: Launch
) -> None:
    folder, script = pair_of_three(tmp_path / "job", "computes"), tmp_path / "otherwise.py"
    lazy = ["--tensor-allocation-mode", "lazy", "--cpu"]
    own = {"0": ["--enable-lazy-tensor-allocation", "--device", "cpu"], "1": lazy, "2": lazy}
    script.write_text(OTHERWISE.format(own=own))
    done = launch(3, str(script), "--trace", str(folder), timeout=60)
    assert done.returncode == 0, done.stderr
