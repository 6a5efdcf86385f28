"""Plan files: what goes in comes out, and what is not valid is refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planning.event_lines import events_of

from et_replay.errors import PlanError, TraceError
from et_replay.planning import check_plan, encode_plan, lifetimes, plan_events, read_plan

EVENTS = events_of("+a 1000, +b 512, -a, +c 2048, -b, -c")


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    file.write_bytes(encode_plan(plan_events(EVENTS)))
    return file


def test_a_plan_comes_back_as_it_was(plan_file: Path) -> None:
    plan, made = read_plan(plan_file), plan_events(EVENTS)

    assert plan.offset.tolist() == made.offset.tolist()
    assert plan.arena_bytes == made.arena_bytes == 2560
    assert plan.method == made.method
    check_plan(plan, lifetimes(EVENTS), "the same")


def test_the_file_says_what_it_holds(plan_file: Path) -> None:
    content = json.loads(plan_file.read_text())

    assert content["et_replay_plan"] == 1
    assert content["digest"].startswith("sha256:")
    assert content["classes"] == {"passing": {"storages": 3, "bytes": 3560}}
    assert content["columns"]["size"] == [1000, 512, 2048]
    assert (content["columns"]["start"], content["columns"]["end"]) == ([1, 2, 4], [3, 5, 6])
    assert {len(column) for column in content["columns"].values()} == {3}


@pytest.mark.parametrize(
    ("lines", "difference"),
    [
        ("+a 1000, +b 512, -a, +c 4096, -b, -c", r"storage 2: expected 2048 bytes .* got 4096"),
        ("+a 1000, +b 512, +c 2048, -a, -b, -c", r"storage 0: .*\[1, 3\).* got .*\[1, 4\)"),
        ("+a 1000, +b 512, -a, +c 2048 @3, -b, -c", r"storage 2: .*stream 0 .* stream 3"),
        ("+a 1000, +b 512, -a", r"storage 1: .*"),
        ("+a 1000, +b 512, -a, +c 2048, -b, -c, +d 1, -d", "storage 3: expected none, got 1 bytes"),
    ],
)
def test_a_plan_for_other_events_is_refused_with_the_first_difference(
    plan_file: Path, lines: str, difference: str
) -> None:
    with pytest.raises(PlanError, match=f"first difference is {difference}"):
        check_plan(read_plan(plan_file), lifetimes(events_of(lines)), "other.json")


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return write


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda file: file.write_text("{"), "is not a plan file"),
        (lambda file: file.write_text('{"nodes": []}'), "is not a plan file"),
        (changed(lambda plan: plan.update(et_replay_plan=2)), "version 2, expected 1"),
        (changed(lambda plan: plan["columns"]["offset"].pop()), "3 rows in its column offset"),
        (changed(lambda plan: plan["columns"].update(offset=[0, 0, 0])), "overlap"),
        (changed(lambda plan: plan["columns"].update(offset=[7, 1024, 2048])), "alignment"),
        (changed(lambda plan: plan["columns"].update(size=[8, 8, 8])), "was changed"),
        (changed(lambda plan: plan["columns"].update(size=[2**70, 8, 8])), "beyond 64 bits"),
        (changed(lambda plan: plan.update(arena_bytes=2048)), "beyond the arena"),
    ],
)
def test_what_is_no_valid_plan_is_refused(
    plan_file: Path, damage: Callable[[Path], None], complaint: str
) -> None:
    damage(plan_file)
    with pytest.raises(PlanError, match=complaint):
        read_plan(plan_file)


def test_a_file_that_is_not_there_is_an_error_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="Cannot read"):
        read_plan(tmp_path / "nothing.json")
