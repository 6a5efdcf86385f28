"""Matching: the calls of all ranks fit together, or the first that does not is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_rank_files import write_job
from made_ranks import SPOILS, MadeCall, change, job

from et_replay.ranks.files import rank_files
from et_replay.ranks.groups import group_text
from et_replay.ranks.matching import Matching, match


def matching_of(folder: Path | str) -> Matching:
    return match(rank_files(str(folder)), jobs=1)


def test_a_sound_job_fits_together(tmp_path: Path) -> None:
    found = matching_of(write_job(tmp_path / "job", job(data=2, tensor=2, pipeline=2)))

    assert found.problem == ""
    assert found.world_size == 8
    assert found.notes == ()
    assert [group.ranks for group in found.groups] == [
        (0, 1, 2, 3, 4, 5, 6, 7),
        *((0, 1), (0, 2), (0, 4), (1, 3), (1, 5), (2, 3), (2, 6)),
        *((3, 7), (4, 5), (4, 6), (5, 7), (6, 7)),
    ]
    by_name = {group.description: group.kinds for group in found.groups}
    assert by_name == {
        "default_pg": {"broadcast": (2, 256, True), "barrier": (1, 0, True)},
        "tensor": {"all_reduce": (2, 256, True)},
        "data": {
            "all_to_all_single": (2, by_name["data"]["all_to_all_single"][1], True),
            "all_gather_into_tensor": (2, 128, True),
            "all_gather": (2, 64, True),
            "reduce_scatter_tensor": (2, 128, True),
        },
        "pipeline": {"send": (2, 4 * (64 + 65), True)},
    }


@pytest.mark.parametrize("name", SPOILS)
def test_every_kind_of_mismatch_is_named(tmp_path: Path, name: str) -> None:
    spoil = SPOILS[name]
    ranks = job(data=2, tensor=2, pipeline=2)
    spoil.apply(ranks[spoil.rank])
    found = matching_of(write_job(tmp_path / "job", ranks))

    assert found.mismatch is not None
    assert spoil.text in found.mismatch.text
    assert found.problem == found.mismatch.text
    assert f"rank {spoil.rank}" in found.mismatch.text.lower()
    assert group_text(spoil.group) in found.mismatch.text
    assert found.mismatch.group == spoil.group
    if found.mismatch.node_id is not None:
        assert f"node {found.mismatch.node_id}" in found.mismatch.text
    assert [group.ranks for group in found.groups if not group.matched] == [spoil.group]


_NOT_COMPARED = {
    "all_to_all_single": None,
    "all_gather_into_tensor": None,
    "all_gather": None,
    "reduce_scatter_tensor": None,
}
"""Of the data group in each of two layers, in this order."""


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("another size", {"all_reduce": False}),
        ("another kind", {"all_reduce": False, "broadcast": False}),
        ("another root", {"broadcast": False, "barrier": None}),
        ("the last call that lacks", {"broadcast": True, "barrier": False}),
        (
            "an input that does not fit its group",
            {**_NOT_COMPARED, "reduce_scatter_tensor": False},
        ),
        ("parts of an all_to_all", {**_NOT_COMPARED, "all_to_all_single": False}),
        (
            "another order",
            {**_NOT_COMPARED, "all_gather_into_tensor": False, "all_gather": False},
        ),
        ("a send of another size", {"send": False}),
    ],
)
def test_a_kind_of_call_fits_unless_it_is_where_the_first_misfit_is_or_behind(
    tmp_path: Path, name: str, verdicts: dict[str, bool | None]
) -> None:
    spoil = SPOILS[name]
    ranks = job(data=2, tensor=2, pipeline=2)
    spoil.apply(ranks[spoil.rank])
    found = matching_of(write_job(tmp_path / "job", ranks))

    for group in found.groups:
        told = {kind: calls.matched for kind, calls in group.kinds.items()}
        assert told == (verdicts if group.ranks == spoil.group else dict.fromkeys(told, True))


def test_whether_calls_fit_is_not_known_in_a_group_of_which_a_rank_has_no_file(
    tmp_path: Path,
) -> None:
    folder = write_job(tmp_path / "job", job(data=2, tensor=1, pipeline=2, layers=1))
    (folder / "rank-3.json.gz").unlink()
    found = matching_of(f"{folder}/rank-{{rank}}.json.gz")

    assert found.missing == (3,)
    assert found.mismatch is None
    assert [(group.ranks, group.matched) for group in found.groups] == [
        ((0, 1, 2, 3), None),
        ((0, 1), True),
        ((0, 2), True),
        ((1, 3), None),
        ((2, 3), None),
        *(((rank,), True) for rank in range(3)),
    ]
    (pipeline,) = (group for group in found.groups if group.ranks == (1, 3))
    assert {kind: calls.matched for kind, calls in pipeline.kinds.items()} == {"send": None}


def test_a_misfit_among_ranks_that_have_files_is_one_without_the_others_too(
    tmp_path: Path,
) -> None:
    ranks = job(data=4, tensor=1, pipeline=1, layers=1)
    change("all_gather", taken=(4,))(ranks[1])
    folder = write_job(tmp_path / "job", ranks)
    (folder / "rank-3.json.gz").unlink()
    found = matching_of(f"{folder}/rank-{{rank}}.json.gz")
    (data,) = (group for group in found.groups if group.description == "data")

    assert found.mismatch is not None
    assert data.matched is False
    assert {kind: calls.matched for kind, calls in data.kinds.items()} == {
        "all_to_all_single": None,
        "all_gather_into_tensor": None,
        "all_gather": False,
        "reduce_scatter_tensor": None,
    }


def test_a_kind_that_comes_before_the_first_misfit_alone_fits(tmp_path: Path) -> None:
    ranks = job(data=2, tensor=1, pipeline=1, layers=1)
    change("all_gather", taken=(4,))(ranks[1])
    (group, *_) = (
        group
        for group in matching_of(write_job(tmp_path / "job", ranks)).groups
        if group.description == "data"
    )

    assert not group.matched
    assert group.kinds == {
        "all_to_all_single": (1, 16, True),
        "all_gather_into_tensor": (1, 64, True),
        "all_gather": (1, 32, False),
        "reduce_scatter_tensor": (1, 64, None),
    }


def test_sends_are_compared_whether_or_not_collectives_fit(tmp_path: Path) -> None:
    ranks = job(data=1, tensor=1, pipeline=2, layers=1)
    for made in ranks:
        made.calls.append(MadeCall("broadcast", "pipeline", (4,), (4,), made.rank))
    found = matching_of(write_job(tmp_path / "job", ranks))

    assert {group.description: dict(group.kinds) for group in found.groups}["pipeline"] == {
        "broadcast": (1, 16, False),
        "send": (1, 256, True),
    }


def test_the_odd_rank_is_the_one_that_is_named_even_if_it_comes_first(tmp_path: Path) -> None:
    ranks = job(data=1, tensor=4, pipeline=1)
    SPOILS["another size"].apply(ranks[0])
    found = matching_of(write_job(tmp_path / "job", ranks))

    assert found.mismatch is not None
    assert found.mismatch.text == (
        "Rank 0 calls all_reduce of 65 c10::BFloat16 at node 10 as call 1 of group (0..3) #2, where"
        " rank 1 calls all_reduce of 64 c10::BFloat16 at node 10."
    )


def test_the_earliest_difference_of_all_ranks_is_named(tmp_path: Path) -> None:
    ranks = job(data=1, tensor=4, pipeline=1)
    SPOILS["the last call that lacks"].apply(ranks[1])
    SPOILS["another root"].apply(ranks[3])
    found = matching_of(write_job(tmp_path / "job", ranks))

    assert found.mismatch is not None
    assert found.mismatch.rank == 3
    assert "call 1 of group (0..3)" in found.mismatch.text


def test_a_rank_that_makes_no_call_in_its_group_is_named(tmp_path: Path) -> None:
    ranks = job(data=1, tensor=2, pipeline=1, layers=1)
    ranks[1].calls[:] = [call for call in ranks[1].calls if call.group != "tensor"]
    found = matching_of(write_job(tmp_path / "job", ranks))

    assert found.problem == (
        "Rank 1 makes 0 calls in group (0, 1) #2 and then lacks all_reduce of 64 c10::BFloat16,"
        " which rank 0 calls at node 10."
    )


def test_a_rank_without_a_file_is_named(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "job", job(data=2, tensor=2, pipeline=1))
    (folder / "rank-3.json.gz").unlink()
    found = matching_of(folder)

    assert found.missing == (3,)
    assert found.mismatch is None
    assert found.problem == (
        "The job has ranks 0, 1 and 2 of 4: rank 3 is missing, but all are needed; --trace FILE"
        " takes one rank alone."
    )


def test_several_processes_find_what_one_finds(tmp_path: Path) -> None:
    ranks = job(data=2, tensor=2, pipeline=2)
    SPOILS["parts of an all_to_all"].apply(ranks[1])
    files = rank_files(str(write_job(tmp_path / "job", ranks, nodes=3000)))
    told: list[tuple[int, int]] = []

    found = match(files, jobs=2, progress=lambda done, total: told.append((done, total)))
    assert found == match(files, jobs=1)
    assert told == [(k, 8) for k in range(1, 9)]


def test_another_root_is_a_problem_and_a_sound_job_has_none(tmp_path: Path) -> None:
    ranks = job(data=2, tensor=1, pipeline=1)
    sound = matching_of(write_job(tmp_path / "sound", ranks))
    assert (sound.problem, sound.world_size) == ("", 2)
    SPOILS["another root"].apply(ranks[1])
    spoilt = matching_of(write_job(tmp_path / "spoilt", ranks))
    assert "broadcast of 16 long int with root 1" in spoilt.problem


def test_a_file_that_says_to_be_of_another_rank_is_told(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "job", job(data=2, tensor=1, pipeline=1))
    (folder / "rank-1.json.gz").write_bytes((folder / "rank-0.json.gz").read_bytes())

    told = "Rank 1: The trace rank-1.json.gz itself says rank 0."
    assert told in matching_of(folder).notes


def test_two_faults_in_one_group_are_told_by_the_first(tmp_path: Path) -> None:
    ranks = job(data=2, tensor=1, pipeline=1)
    change("all_to_all_single", given=(5,))(ranks[1])
    SPOILS["an output that does not fit its group"].apply(ranks[0])
    found = matching_of(write_job(tmp_path / "job", ranks))

    assert found.mismatch is not None
    assert found.mismatch.rank == 1
    assert "the input has 5 elements, expected 3 by its parts" in found.mismatch.text


def test_any_one_call_that_lacks_on_any_rank_is_found(tmp_path: Path) -> None:
    sound = job(data=2, tensor=1, pipeline=2, layers=1)
    folder = write_job(tmp_path / "job", sound)
    files = rank_files(str(folder))
    assert match(files, jobs=1).mismatch is None

    for made in sound:
        for index, lacking in enumerate(made.calls):
            if lacking.group == "tensor":  # which has this rank alone
                continue
            calls = [*made.calls[:index], *made.calls[index + 1 :]]
            write_job(folder, [replace(made, calls=calls)])
            found = match(files, jobs=1).mismatch
            assert found is not None, lacking
            assert found.group == made.groups[lacking.group]
        write_job(folder, [made])


def test_without_the_records_of_nccl_all_ranks_together_tell_the_groups(tmp_path: Path) -> None:
    ranks = job(data=2, tensor=2, pipeline=2)
    for made in ranks:  # each group has sizes of its own
        first = min(made.groups["tensor"])
        change("all_reduce", given=(64 + first,), taken=(64 + first,))(made)
    told = matching_of(write_job(tmp_path / "nccl", ranks))
    found = matching_of(write_job(tmp_path / "gloo", ranks, backend="gloo"))

    assert found.problem == told.problem == ""
    assert told.inferred == {}
    assert set(found.inferred) == set(range(8))
    by_group = {group.ranks: group.kinds for group in found.groups}
    assert by_group[4, 5]["all_reduce"] == (1, 2 * 68, True)


def test_an_output_for_more_ranks_than_there_are_is_named_without_nccl_too(tmp_path: Path) -> None:
    ranks = job(data=2, tensor=1, pipeline=1, layers=1)
    change("all_gather_into_tensor", taken=(24,))(ranks[1])
    found = matching_of(write_job(tmp_path / "job", ranks, backend="gloo"))

    assert found.problem == (
        "Rank 1 calls all_gather_into_tensor of 8 float at node 14 in group (0, 1), but the output"
        " has 24 elements and the input 8, expected 2 times as many for 2 ranks; the traces do not"
        " tell which calls are in this group, so they may fit all the same: --replay-mode comp"
        " replays without any."
    )


def test_a_mismatch_among_guessed_calls_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    ranks = job(data=2, tensor=2, pipeline=1, layers=1)
    SPOILS["another root"].apply(ranks[1])
    found = matching_of(write_job(tmp_path / "job", ranks, backend="gloo"))

    assert found.problem == (
        "Rank 1 calls broadcast of 16 long int with root 1 at node 20 as call 2 of group (0..3),"
        " where rank 0 calls broadcast of 16 long int with root 0 at node 20; the traces do not"
        " tell which calls are in this group, so they may fit all the same: --replay-mode comp"
        " replays without any."
    )
