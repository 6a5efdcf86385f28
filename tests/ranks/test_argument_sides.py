"""An argument's name tells whether its tensors go into a collective, come out of it, or both."""

from __future__ import annotations

import pytest

from et_replay.ranks.argument_sides import comes_out, goes_in


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("input_tensors", (True, False)),
        ("self", (True, False)),
        ("output", (False, True)),
        ("output_lists", (False, True)),
        ("out", (False, True)),
        ("tensors", (True, True)),
        ("tensor", (True, True)),
        ("sparse_indices", (False, False)),
    ],
)
def test_the_sides_of_an_argument(name: str, sides: tuple[bool, bool]) -> None:
    assert (goes_in(name), comes_out(name)) == sides
