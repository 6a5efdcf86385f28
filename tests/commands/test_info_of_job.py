"""`et_replay info` of the folder of a job: its ranks, its groups, and whether the calls fit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from made_rank_files import write_job
from made_ranks import SPOILS, job

from et_replay.commands import main


def test_a_job_that_fits_is_told_on_one_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_job(tmp_path / "job", job(data=2, tensor=2, pipeline=2))

    assert main(["info", "--trace", str(folder), "--jobs", "1"]) == 0
    assert capsys.readouterr().out == (
        f"Job      {folder}\n"
        """Ranks    all 8
Groups   12 groups of 2, 1 group of 8
Matched  all calls fit together

Collectives
  group   ranks  alike  call                    count   size  matched
  (0..7)      8      1  barrier                     1    0 B  yes
  (0..7)      8      1  broadcast                   2  256 B  yes
  (0, 1)      2      4  all_reduce                  2  256 B  yes
  (0, 2)      2      4  all_gather                  2   64 B  yes
  (0, 2)      2      4  all_gather_into_tensor      2  128 B  yes
  (0, 2)      2      4  all_to_all_single           2   36 B  yes
  (0, 2)      2      4  reduce_scatter_tensor       2  128 B  yes
  (0, 4)      2      4  send                        2  516 B  yes
"""
    )


def test_a_mismatch_is_told_and_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = job(data=2, tensor=2, pipeline=2)
    SPOILS["another root"].apply(ranks[1])
    pattern = f"{write_job(tmp_path / 'job', ranks)}/rank-{{rank}}.json.gz"

    assert main(["info", "--trace", pattern]) == 1
    out = capsys.readouterr().out
    assert (
        "Matched  Rank 1 calls broadcast of 16 long int with root 1 at node 22 as call 1 of group"
        " (0..7), where rank 0 calls broadcast of 16 long int with root 0 at node 22.\n"
    ) in out
    assert out.endswith(
        """
  group   ranks  alike  call                    count   size  matched
  (0..7)      8      1  barrier                     1    0 B  -
  (0..7)      8      1  broadcast                   2  256 B  no
  (0, 1)      2      4  all_reduce                  2  256 B  yes
  (0, 2)      2      4  all_gather                  2   64 B  yes
  (0, 2)      2      4  all_gather_into_tensor      2  128 B  yes
  (0, 2)      2      4  all_to_all_single           2   36 B  yes
  (0, 2)      2      4  reduce_scatter_tensor       2  128 B  yes
  (0, 4)      2      4  send                        2  516 B  yes
"""
    )


def test_the_same_is_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = job(data=1, tensor=2, pipeline=1, layers=1)
    SPOILS["the last call that lacks"].apply(ranks[1])
    folder = write_job(tmp_path / "job", ranks)

    assert main(["info", "--trace", str(folder), "--json", "-"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["trace"] == str(folder)
    assert result["ranks"] == [0, 1]
    assert result["world_size"] == 2
    assert result["missing_ranks"] == []
    assert result["matched"] is False
    assert result["mismatch"] == {
        "text": "Rank 1 makes 1 call in group (0, 1) and then lacks barrier, which rank 0 calls at"
        " node 22.",
        "rank": 1,
        "node_id": None,
        "group": [0, 1],
    }
    assert result["groups"][0] == {
        "ranks": [0, 1],
        "instance": 0,
        "description": "default_pg",
        "collectives": [
            {"kind": "broadcast", "count": 1, "size_bytes": 128, "matched": True},
            {"kind": "barrier", "count": 1, "size_bytes": 0, "matched": False},
        ],
        "matched": False,
    }


def test_what_comes_after_a_mismatch_is_neither_true_nor_false_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = job(data=1, tensor=2, pipeline=1, layers=1)
    SPOILS["another root"].apply(ranks[1])
    folder = write_job(tmp_path / "job", ranks)

    assert main(["info", "--trace", str(folder), "--json", "-"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["groups"][0]["collectives"] == [
        {"kind": "broadcast", "count": 1, "size_bytes": 128, "matched": False},
        {"kind": "barrier", "count": 1, "size_bytes": 0, "matched": None},
    ]


def test_a_missing_rank_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_job(tmp_path / "job", job(data=4, tensor=1, pipeline=1))
    (folder / "rank-2.json.gz").unlink()

    assert main(["info", "--trace", str(folder)]) == 1
    assert "has ranks 0, 1 and 3 of 4: rank 2 is missing" in capsys.readouterr().err


def test_a_rank_that_no_name_can_tell_to_be_missing_is_told_by_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_job(tmp_path / "job", job(data=4, tensor=1, pipeline=1))
    (folder / "rank-3.json.gz").unlink()

    assert main(["info", "--trace", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "Ranks    0, 1 and 2 of 4" in out
    assert "Matched  The job has ranks 0, 1 and 2 of 4: rank 3 is missing, but all are" in out
    assert "  (0..3)         4      1  broadcast                   2  256 B  -\n" in out
    assert "  (0)            1      3  all_reduce                  2  256 B  yes\n" in out


def test_damage_to_any_rank_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_job(tmp_path / "job", job(data=2, tensor=1, pipeline=1))
    packed = folder / "rank-1.json.gz"
    text = gzip.decompress(packed.read_bytes()).decode()
    packed.unlink()
    (folder / "rank-1.json").write_text(text[: text.rindex("}")])

    assert main(["info", "--trace", str(folder)]) == 0
    assert "warning: Rank 1: The file breaks off: " in capsys.readouterr().err


def test_a_trace_that_breaks_off_is_told_with_the_calls_that_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_job(tmp_path / "job", job(data=1, tensor=2, pipeline=1, layers=1))
    file = folder / "rank-1.json.gz"
    text = gzip.decompress(file.read_bytes())
    file.write_bytes(text[: text.index(b"barrier")])

    assert main(["info", "--trace", str(folder)]) == 1
    assert (
        "Matched  Rank 1 makes 1 call in group (0, 1) and then lacks barrier, which rank 0 calls at"
        " node 22; what was read of rank 1 breaks off and may lack calls: --replay-mode comp"
        " replays without any.\n"
    ) in capsys.readouterr().out
