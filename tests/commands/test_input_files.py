"""Several inputs: what a folder, and a path with {rank}, stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
from captured_folders import write_run
from made_rank_files import write_job
from made_ranks import job
from trace_builder import node, write_trace

from et_replay.commands import main
from et_replay.commands.input_files import Named, expand, expand_to_one
from et_replay.errors import TraceError, UsageError


def write(folder: Path, *names: str) -> str:
    for name in names:
        write_trace(folder / name, node(3, "x", 2))
    return str(folder)


def test_the_files_of_ranks_are_listed_by_rank(tmp_path: Path) -> None:
    names = [f"rank-{rank}.json" for rank in range(11)]
    folder = write(tmp_path, *sorted(names))
    assert expand([folder]) == [
        Named(f"{folder}/{name}", rank=rank) for rank, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("rank-0.json", "rank-2.json"), "ranks 0 and 2 of 3: rank 1 is missing"),
        (
            ("rank-0.json", "rank0.json", "rank-1.json"),
            "two files of rank 0, rank-0.json and rank0",
        ),
    ],
)
def test_a_rank_that_is_missing_or_there_twice_is_refused(
    tmp_path: Path, names: tuple[str, ...], sentence: str
) -> None:
    folder = write(tmp_path, *names)
    with pytest.raises(TraceError, match=sentence):
        expand([folder])


@pytest.mark.parametrize("name", ["", "rank-{rank}.json.gz"])
def test_a_rank_that_only_the_traces_tell_to_be_missing_is_refused(
    tmp_path: Path, name: str
) -> None:
    folder = write_job(tmp_path / "job", job(data=4, tensor=1, pipeline=1))
    (folder / "rank-3.json.gz").unlink()
    with pytest.raises(TraceError, match="has ranks 0, 1 and 2 of 4: rank 3 is missing"):
        expand([str(folder / name)])


@pytest.mark.parametrize(("traces", "ending"), [(False, "snapshot.pickle"), (True, "et.json")])
def test_a_captured_run_stands_for_a_file_of_each_rank(
    tmp_path: Path, traces: bool, ending: str
) -> None:
    file = write_trace(tmp_path / "t.json", node(3, "x", 2))
    folder = tmp_path / "run"
    for rank in (2, 0, 1):
        write_run(folder, ends=[], rank=rank, world_size=3, snapshot=file, trace=file)
    assert [(named.path, named.rank) for named in expand([str(folder)], traces=traces)] == [
        (f"{folder}/rank-{rank}.{ending}", rank) for rank in (0, 1, 2)
    ]
    (folder / "rank-1.run.jsonl").unlink()
    with pytest.raises(TraceError, match="has ranks 0 and 2 of 3: rank 1 is missing"):
        expand([str(folder)], traces=traces)


def test_a_file_of_a_rank_that_holds_nothing_is_listed_for_reading_it_to_fail(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, "rank-0.json")
    (tmp_path / "rank-1.json").touch()
    (tmp_path / "rank-2.txt").touch()
    assert expand([folder]) == [Named(f"{folder}/rank-{rank}.json", rank=rank) for rank in (0, 1)]
    assert main(["fit", "--trace", folder, "--quiet"]) == 1


def test_other_files_are_listed_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path, "b.json", "rank-1.json", "a.json")
    assert expand([folder]) == [Named(f"{folder}/{name}.json") for name in ("a", "b", "rank-1")]


def test_a_pattern_stands_for_all_ranks_of_a_job(tmp_path: Path) -> None:
    folder = write(tmp_path, "et_0.json", "et_1.json", "other.json")
    pattern = f"{folder}/et_{{rank}}.json"
    assert expand([pattern]) == [Named(f"{folder}/et_{rank}.json", rank=rank) for rank in (0, 1)]
    Path(folder, "et_0.json").unlink()
    with pytest.raises(TraceError, match="rank 0 is missing"):
        expand([pattern])


@pytest.mark.parametrize(
    ("names", "ways"),
    [
        (("a.json",), "give its file a.json"),
        (("rank-0.json",), "give its file rank-0.json"),
        (("a.json", "b.json"), "give one file of a.json, b.json"),
        (
            ("et_0.json", "et_1.json", "table.csv"),
            "give one file of et_0.json, et_1.json, table.csv, or replay all ranks: torchrun"
            " --nproc-per-node 2 -m et_replay",
        ),
        (
            ("rank-0.json", "rank-1.json", "x.csv"),
            "give one file of rank-0.json, rank-1.json, x.csv, or replay all ranks: torchrun"
            " --nproc-per-node 2 -m et_replay",
        ),
        (("rank-0.csv", "rank-1.csv"), "give one file of rank-0.csv, rank-1.csv"),
        (("rank-0.json", "rank-1.csv"), "give one file of rank-0.json, rank-1.csv"),
    ],
)
def test_all_ranks_are_a_way_out_where_a_folder_holds_those_of_a_job(
    tmp_path: Path, names: tuple[str, ...], ways: str
) -> None:
    folder = write(tmp_path, *(name for name in names if name.endswith(".json")))
    for name in names:
        if name.endswith(".csv"):
            (tmp_path / name).write_text("id,lower,upper,size\na,0,3,512\n")
    with pytest.raises(UsageError) as caught:
        expand_to_one(folder)
    assert str(caught.value) == f"{folder} is a folder, expected one trace: {ways}."


def test_a_run_of_processes_that_are_no_ranks_is_not_replayed_together(tmp_path: Path) -> None:
    file = write_trace(tmp_path / "t.json", node(3, "x", 2))
    folder = tmp_path / "run"
    for rank in (0, 1):
        write_run(folder, ends=[], rank=rank, world_size=2, trace=file)
    with pytest.raises(UsageError, match=r"replay all ranks: torchrun --nproc-per-node 2 -m et_"):
        expand_to_one(str(folder))
    (folder / "rank-1.et.json").write_text('{"traceEvents": []}')
    with pytest.raises(UsageError, match=r"give one file of rank-0\.et\.json, rank-1\.et\.json\.$"):
        expand_to_one(str(folder))
