"""What an operator demands of a copy, it demands of what was copied."""

from __future__ import annotations

from pathlib import Path

from program.programs import program_of
from replay.tiny_traces import call, floats, integers, see, values_seen

from et_replay.program import Program
from et_replay.replay.copied_values import pass_back
from et_replay.replay.requirement import Requirement


def sorted_lengths(folder: Path) -> Program:
    """Return a program that sorts lengths, storage 0, before they are used, storage 1."""
    lengths, falling, order = integers(11, 2), integers(12, 2), integers(13, 2)
    return program_of(
        folder, call(10, "sort", [lengths, -1, True], [falling, order]), see(14, falling)
    )


def test_lengths_have_their_sum_before_they_are_sorted(tmp_path: Path) -> None:
    needed = Requirement(1, 5, total=8)
    requirements = {1: needed}

    pass_back(sorted_lengths(tmp_path), requirements)

    assert requirements == {0: needed, 1: needed}


def test_what_is_known_of_the_source_is_not_changed(tmp_path: Path) -> None:
    requirements = {0: Requirement(0, 1), 1: Requirement(1, 5, total=8)}

    pass_back(sorted_lengths(tmp_path), requirements)

    assert requirements[0] == Requirement(0, 1)


def test_values_in_order_are_not_passed_to_a_source_of_another_shape(tmp_path: Path) -> None:
    rows, chosen = integers(11, 4), integers(13, 2)
    program = program_of(
        tmp_path, call(10, "index_select", [rows, 0, integers(12, 2)], [chosen]), see(14, chosen)
    )
    requirements = {2: Requirement(1, 5, total=8)}

    pass_back(program, requirements)

    assert requirements == {2: Requirement(1, 5, total=8)}


def test_lengths_whose_sums_are_offsets_add_up_to_the_last_one(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        call(10, "cumsum", [integers(11, 3), 0, None], [integers(12, 3)]),
        see(14, integers(12, 3)),
    )
    requirements = {1: Requirement(0, 9, even=True)}

    pass_back(program, requirements)

    assert requirements[0] == Requirement(0, total=9)


def test_lengths_that_are_sorted_and_packed_are_valid(tmp_path: Path) -> None:
    lengths, falling, order = integers(11, 2), integers(12, 2), integers(13, 2)
    steps = integers(15, 5)
    packing = [floats(16, 5, 2, 3), falling, False]

    seen = values_seen(
        tmp_path,
        call(10, "sort", [lengths, -1, True], [falling, order]),
        call(14, "_pack_padded_sequence", packing, [floats(17, 8, 3), steps]),
        see(18, steps),
    )

    assert seen == [[2, 2, 2, 1, 1]]
