"""The files of a job's ranks: found by the names that people use, and each rank once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from captured_folders import write_run
from made_rank_files import write_job
from made_ranks import job
from trace_builder import node, trace, write_trace

from et_replay.errors import TraceError, UsageError
from et_replay.ranks.files import rank_files, rank_in_name

TRACE = json.dumps(trace(node(3, "x", 2)))


def folder_of(tmp_path: Path, *names: str) -> str:
    folder = tmp_path / "job"
    folder.mkdir()
    for name in names:
        content = TRACE.encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder)


def names_of(path: str) -> list[str]:
    """Return the names of the files in the order of their ranks, which count from 0."""
    files = rank_files(path)
    assert list(files) == list(range(len(files)))
    return [file.name for file in files.values()]


@pytest.mark.parametrize(
    "pattern",
    [
        "rank-{}.json",
        "rank{}.json",
        "rank_{}.json.gz",
        "et_{}.json",
        "execution_trace_rank{}.json",
        "execution_trace_{}.json.gz",
        "worker{}.et.json",
        "rank-{}.et.json",
        "llama.{}.et",
        "job_8_gpus_{}.json",
    ],
)
def test_the_names_that_people_use_tell_the_ranks(tmp_path: Path, pattern: str) -> None:
    names = [pattern.format(rank) for rank in range(11)]
    assert names_of(folder_of(tmp_path, *sorted(names))) == names


def test_of_two_numbers_that_vary_the_rank_counts_from_zero(tmp_path: Path) -> None:
    names = ["et_4711_0.json", "et_4712_1.json", "et_4710_2.json"]
    assert names_of(folder_of(tmp_path, *names)) == names


def test_other_files_do_not_disturb(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "rank-0.json", "rank-1.json")
    Path(path, "notes.txt").write_text("x")
    Path(path, "settings.json").write_text("{}")
    Path(path, "rank-0.plan.json").write_text("{}")
    Path(path, "rank-1.snapshot.pickle").write_bytes(b"x")
    assert names_of(path) == ["rank-0.json", "rank-1.json"]


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    path = folder_of(tmp_path, *(f"et_{rank}.json" for rank in (0, 1, 2, 4)))
    with pytest.raises(TraceError) as caught:
        rank_files(path)
    assert str(caught.value) == (
        f"{path} has ranks 0, 1, 2 and 4 of 5: rank 3 is missing, but all are needed; --trace FILE"
        " takes one rank alone."
    )


def test_how_many_ranks_there_are_is_told_by_the_trace_of_one_where_others_lack(
    tmp_path: Path,
) -> None:
    folder = write_job(tmp_path / "job", job(data=4, tensor=1, pipeline=1)[2:3])
    with pytest.raises(TraceError, match="has rank 2 of 4: ranks 0, 1 and 3 are missing, but all"):
        rank_files(str(folder))


def test_two_files_of_a_rank_are_refused(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "rank-0.json", "rank-0.json.gz", "rank-1.json")
    with pytest.raises(TraceError, match=r"two files of rank 0, rank-0\.json and rank-0\.json\.gz"):
        rank_files(path)


@pytest.mark.parametrize(
    ("names", "pattern", "way_out"),
    [
        (("rank-0.json", "rank-00.json"), "", "move one of them to another folder"),
        (("job_0.json", "job_00.json"), "job_{rank}.json", "move one of them to another folder"),
        (
            ("rank-0.json", "rank0.json"),
            "",
            "a path with {rank} in the place of the rank chooses one",
        ),
        (
            ("step1_rank0.json", "step2_rank0.json"),
            "",
            "a path with {rank} in the place of the rank chooses one",
        ),
    ],
)
def test_of_two_files_of_a_rank_a_way_to_one_is_told(
    tmp_path: Path, names: tuple[str, str], pattern: str, way_out: str
) -> None:
    path = folder_of(tmp_path, *names)
    path = f"{path}/{pattern}" if pattern else path
    with pytest.raises(TraceError) as caught:
        rank_files(path)
    assert str(caught.value) == (
        f"{path} has two files of rank 0, {names[0]} and {names[1]}: {way_out}."
    )


def test_a_file_with_another_name_may_be_the_second_of_a_rank(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "job_0.json", "job_1.json", "other_0.json")
    with pytest.raises(TraceError, match=r"two files of rank 0, job_0\.json and other_0\.json"):
        rank_files(path)
    Path(path, "other_0.json").write_text("{}")
    assert names_of(path) == ["job_0.json", "job_1.json"]


def test_a_pattern_chooses_among_files(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "a0.json", "a1.json", "b0.json", "b1.json", "a1b2.json")
    assert names_of(f"{path}/b{{rank}}.json") == ["b0.json", "b1.json"]
    with pytest.raises(TraceError, match="has no execution trace"):
        rank_files(f"{path}/c{{rank}}.json")


def test_a_pattern_may_hold_the_rank_twice(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"host{rank}").mkdir()
        write_trace(tmp_path / f"host{rank}" / f"et_{rank}.json", node(3, "x", 2))
    files = rank_files(f"{tmp_path}/host{{rank}}/et_{{rank}}.json")
    assert [file.name for file in files.values()] == ["et_0.json", "et_1.json"]


def test_where_names_tell_nothing_the_traces_do(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for name, rank in (("left", 1), ("right", 0)):
        groups = [{"pg_name": "1", "ranks": [rank], "group_size": 1}]
        listing = node(3, "## process_group:init ##", 2, [json.dumps(groups)])
        write_trace(folder / f"{name}.json", listing)
    assert names_of(str(folder)) == ["right.json", "left.json"]


def test_a_file_of_an_unknown_rank_is_refused(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "left.json", "right.json")
    with pytest.raises(TraceError, match=r"of which rank left\.json in .* is, expected names such"):
        rank_files(path)


def test_a_single_trace_is_that_of_rank_0(tmp_path: Path) -> None:
    assert names_of(folder_of(tmp_path, "trace.json")) == ["trace.json"]


def test_a_folder_without_a_trace_and_no_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has no execution trace"):
        rank_files(folder_of(tmp_path))
    with pytest.raises(UsageError, match="is no folder"):
        rank_files(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-3.json", 3),
        ("et_rank12.json.gz", 12),
        ("Rank_0.et.json", 0),
        ("llama.7.et", 7),
        ("crank3.json", None),
        ("et_3.json", None),
    ],
)
def test_a_name_alone_tells_the_rank_only_in_words(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


def test_a_captured_run_tells_its_ranks_and_how_many_there_were(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trace_file = write_trace(tmp_path / "t.json", node(3, "x", 2))
    for rank in (0, 1):
        write_run(folder, ends=[], rank=rank, world_size=3, trace=trace_file)
    with pytest.raises(TraceError, match=r"has ranks 0 and 1 of 3: rank 2 is missing"):
        rank_files(str(folder))
    write_run(folder, ends=[], rank=2, world_size=3, trace=trace_file)
    assert names_of(str(folder)) == ["rank-0.et.json", "rank-1.et.json", "rank-2.et.json"]


def test_numbers_of_processes_are_no_ranks(tmp_path: Path) -> None:
    path = folder_of(tmp_path, "trace_4711.json", "trace_4712.json")
    with pytest.raises(TraceError, match="Neither its name nor what is in it"):
        rank_files(path)
