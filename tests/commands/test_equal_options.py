"""Options that must be the same in all processes of a replay."""

from __future__ import annotations

import pytest

from et_replay.commands.equal_options import difference


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ((), ""),
        (({"replay_mode": "full", "iterations": "3", "imports": "fbgemm_gpu"},), ""),
        (
            (
                {"replay_mode": "full", "iterations": "3", "imports": "fbgemm_gpu"},
                {"replay_mode": "comm", "iterations": "5", "imports": "fbgemm_gpu"},
            ),
            "The processes have different options: --replay-mode is full in rank 0 and comm in"
            " rank 2, expected the same in all.",
        ),
        (
            ({"replay_mode": "full", "iterations": "3", "imports": "not given"},),
            "The processes have different options: --import is fbgemm_gpu in rank 0 and not given"
            " in rank 1, expected the same in all.",
        ),
    ],
)
def test_the_first_difference_is_named_with_both_values_and_ranks(
    others: tuple[dict[str, str], ...], sentence: str
) -> None:
    first = {"replay_mode": "full", "iterations": "3", "imports": "fbgemm_gpu"}
    assert difference([first, *others]) == sentence
