"""What the ranks of a replay have to say: each note once, with the ranks that it is about."""

from __future__ import annotations

from et_replay.commands.notes_of_ranks import Told, warnings_of


def test_a_note_names_its_ranks_unless_it_is_about_all() -> None:
    told = [
        Told(0, ["It is old."]),
        Told(1, ["It is old.", "The file breaks off."]),
        Told(2, ["It is old.", "The file breaks off.", "It is odd."]),
    ]
    assert list(warnings_of(told)) == [
        "It is old.",
        "Ranks 1 and 2: The file breaks off.",
        "Rank 2: It is odd.",
    ]


def test_other_windows_in_other_ranks_are_a_warning() -> None:
    told = [Told(0, [], "ProfilerStep#4"), Told(1, [], "ProfilerStep#3")]
    told.append(Told(2, [], "ProfilerStep#4"))
    assert list(warnings_of(told)) == [
        "The ranks replay different windows: ProfilerStep#4 in ranks 0 and 2; ProfilerStep#3 in"
        " rank 1; --window names one for all."
    ]


def test_one_process_has_no_rank_to_name() -> None:
    assert list(warnings_of([Told(3, ["It is old."], "all")])) == ["It is old."]
