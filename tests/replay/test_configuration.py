"""A configuration: what a replay leaves out and imports because its user says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import call, floats, held, reasons, run
from trace_builder import operator

from et_replay.errors import UsageError
from et_replay.execution_trace import Node
from et_replay.program import Program
from et_replay.replay.configuration import Configuration, Skip, read_configuration, unmatched
from et_replay.replay.result import Unexecuted


def three_products(folder: Path) -> Program:
    """Return relu of a product, between products of which the last one's shapes do not fit."""
    a, b, c, d, e = (floats(number, 3, 3) for number in (11, 12, 13, 14, 15))
    odd = floats(16, 2, 3)
    return program_of(
        folder,
        call(10, "mm", [a, b], [c]),
        call(11, "relu", [c], [d]),
        call(12, "mm", [odd, odd], [e]),
        operator(13, "nowhere::op", inputs=[e], outputs=[floats(17, 3)]),
    )


@pytest.mark.parametrize(
    ("pattern", "nodes", "matches"),
    [
        ("aten::add", None, True),
        ("aten::add.Tensor", None, True),
        ("aten::*", None, True),
        ("aten::ad", None, False),
        ("Aten::add", None, False),
        ("aten::add", (3, 4), True),
        ("aten::add", (4,), False),
    ],
)
def test_a_pattern_matches_the_name_or_the_overload(
    pattern: str, nodes: tuple[int, ...] | None, matches: bool
) -> None:
    node = Node(3, "aten::add", 2, op_schema="aten::add.Tensor(Tensor self) -> Tensor")

    assert Skip(pattern, "why", nodes).matches(node) is matches


def test_what_is_left_out_is_skipped_with_its_reason_and_its_results_appear(tmp_path: Path) -> None:
    skips = (Skip("aten::mm", "too slow here", (10,)),)

    result = run(three_products(tmp_path), skips=skips)

    assert reasons(result)[0] == ("aten::mm", 1, "skipped", "too slow here")
    assert [each.configured for each in result.coverage.reasons] == [True, False, False]
    assert result.coverage.executed == 1
    assert result.memory.allocated == 5 * 512  # as if the product had been computed


def test_what_could_not_run_is_told_so_that_the_next_replay_leaves_it_out(tmp_path: Path) -> None:
    program = three_products(tmp_path)

    first = run(program)
    configuration = Configuration().extended(["some_module"], first.coverage.unexecuted)

    missing = "torch has no operator nowhere::op; --import the module that registers it"
    product, unknown = configuration.skip
    assert (product.operator, product.nodes) == ("aten::mm", (12,))  # the other one ran
    assert unknown == Skip("nowhere::op", missing)
    assert configuration.imports == ("some_module",)
    second = run(program, on_unsupported="fail", skips=configuration.skip)
    assert (second.coverage.executed, second.coverage.skipped) == (2, 2)
    assert second.coverage.unexecuted == []
    assert second.memory == first.memory


def test_what_the_configuration_has_stays_and_nothing_is_added_twice() -> None:
    known = Configuration(("a",), (Skip("aten::mm", "slow"),))

    found = known.extended(["b", "a"], [Unexecuted("odd[name]", "gone", (3, 4), True)])

    assert found == Configuration(
        ("a", "b"), (Skip("aten::mm", "slow"), Skip("odd[[]name]", "gone"))
    )
    assert found.extended(["b"], [Unexecuted("odd[name]", "gone", (3,), True)]) == found


def test_a_configuration_is_read_as_it_is_written(tmp_path: Path) -> None:
    written = Configuration(("a",), (Skip("aten::mm", "slow", (3,)), Skip("x::*", "none")))
    (tmp_path / "c.json").write_bytes(written.document())

    assert read_configuration(str(tmp_path / "c.json")) == written
    assert json.loads((tmp_path / "c.json").read_text()) == {
        "import": ["a"],
        "skip": [
            {"operator": "aten::mm", "reason": "slow", "nodes": [3]},
            {"operator": "x::*", "reason": "none"},
        ],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no configuration: Input data was truncated; expected "),
        ('{"skips": []}', "Object contains unknown field `skips`"),
        (
            '{"skip": [{"operator": "aten::mm"}]}',
            "missing required field `reason` - at `$.skip[0]`",
        ),
        ('{"skip": [{"operator": 3, "reason": ""}]}', "Expected `str`, got `int`"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_a_sentence(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "c.json").write_text(text)

    with pytest.raises(UsageError) as caught:
        read_configuration(str(tmp_path / "c.json"))

    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"--config {tmp_path / 'c.json'} is no configuration: ")


def test_a_file_that_is_missing_is_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"--config nowhere\.json cannot be read: No such file"):
        read_configuration("nowhere.json")


def test_what_is_left_out_is_not_even_prepared(tmp_path: Path) -> None:
    program = three_products(tmp_path)

    held(program, on_unsupported="fail", skips=(Skip("nowhere::*", "x"), Skip("aten::mm", "y")))


def test_what_matches_nothing_is_told_by_its_place() -> None:
    schema = "aten::add.Tensor(Tensor self) -> Tensor"
    nodes = [Node(3, "aten::add", 2, op_schema=schema), Node(4, "aten::add", 2, op_schema=schema)]
    skips = (
        Skip("aten::mm", "x"),
        Skip("aten::add.Tensor", "x"),
        Skip("aten::add", "x", (5,)),
        Skip("aten::add", "x", (5, 3)),
        Skip("aten::add", "x", ()),
    )

    assert list(unmatched(skips, nodes)) == [
        (0, "aten::mm"),
        (2, "aten::add with its nodes"),
        (4, "aten::add with its nodes"),
    ]
    assert list(unmatched((), nodes)) == []
    assert list(unmatched(skips[:1], [])) == [(0, "aten::mm")]
