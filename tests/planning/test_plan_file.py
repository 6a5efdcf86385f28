"""Plan files: what goes in comes out, and what is not valid is refused with a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning.event_lines import events_of

from et_replay.errors import PlanError, TraceError
from et_replay.planning import (
    Buffers,
    check_plan,
    encode_plan,
    lifetimes,
    plan_events,
    plan_table,
    read_plan,
    run_plan,
)

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


def scalars(**values: object) -> Callable[[Path], None]:
    return changed(lambda plan: plan.update(values))


def column(name: str, value: int) -> Callable[[Path], None]:
    """Change the first row."""
    return changed(lambda plan: plan["columns"][name].__setitem__(0, value))


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
        (column("alignment", 0), r"Expected 1 to \d+ in row 0 of its column alignment, got 0"),
        (column("alignment", -512), r"in row 0 of its column alignment, got -512"),
        (column("offset", -2), r"Expected -1 to \d+ in row 0 of its column offset, got -2"),
        (column("offset", -1), r"Expected an offset in row 0, a passing storage, got -1"),
        (column("storage_class", 9), "Expected 0 to 6 in row 0 of its column storage_class, got 9"),
        (column("storage_class", 1), "counts in its classes"),
        (column("storage_class", 3), r"Expected no offset \(-1\) in row 0, a private storage"),
        (column("storage_class", 4), "Expected the ticks of an iteration.*crossing storages"),
        (scalars(arena_bytes=2**40), "arena is 1099511627776 bytes, expected 2560, where"),
        (scalars(arena_bytes=10**30), "Expected arena_bytes to be 0 to"),
        (scalars(lower_bound_bytes=1), "lower bound is 1 bytes, expected 2560, which live at once"),
        (scalars(lower_bound_bytes=3072), "lower bound is 3072 bytes, expected 2560"),
        (scalars(planning_time_ns=-5), "Expected planning_time_ns to be 0 to .* got -5"),
        (scalars(ticks=5), "Expected at least 6 ticks, .* got 5"),
        (scalars(ticks=10**30), "Expected at least 6 ticks"),
        (scalars(iteration=[5, 2]), r"ends after it begins, got \[5, 2\]"),
        (scalars(iteration=[7, 7]), r"ends after it begins, got \[7, 7\]"),
        (scalars(iteration=[-5, 10**30]), r"ends after it begins, got \[-5, 1"),
        (scalars(tensor_allocation_mode="eager"), "is not a plan file: Invalid enum value"),
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


def test_how_a_trace_was_read_comes_back(plan_file: Path) -> None:
    plan = replace(plan_events(EVENTS), mode="lazy", window="ProfilerStep#2")
    plan_file.write_bytes(encode_plan(plan))
    content = json.loads(plan_file.read_text())
    again = read_plan(plan_file)

    assert (content["tensor_allocation_mode"], content["window"]) == ("lazy", "ProfilerStep#2")
    assert (again.mode, again.window, again.of_table) == ("lazy", "ProfilerStep#2", False)


def test_a_file_that_does_not_tell_how_its_trace_was_read_is_read(plan_file: Path) -> None:
    content = json.loads(plan_file.read_text())
    for key in ("tensor_allocation_mode", "window", "of_table", "repetition"):
        del content[key]
    plan_file.write_text(json.dumps(content))

    assert read_plan(plan_file).mode == ""


def test_a_plan_of_another_mode_is_refused_with_both_modes(plan_file: Path) -> None:
    plan = replace(read_plan(plan_file), source="x.json", mode="pre", window="all")
    other = lifetimes(events_of("+a 1000, -a"))
    with pytest.raises(
        PlanError,
        match=r"made from x\.json with --tensor-allocation-mode pre and --window all, not from"
        r" x\.json with --tensor-allocation-mode lazy and --window 9:12; .*"
        r" et_replay plan --tensor-allocation-mode lazy\.",
    ):
        check_plan(plan, other, "x.json", "lazy", "9:12")


def test_a_name_that_is_no_utf8_is_written_as_escapes(plan_file: Path) -> None:
    plan = replace(plan_events(EVENTS), source=os.fsdecode(b"caf\xe9.json"))
    plan_file.write_bytes(encode_plan(plan))

    assert read_plan(plan_file).source == "caf\\udce9.json"


def test_a_plan_of_an_iteration_without_its_ticks_is_refused(plan_file: Path) -> None:
    line = ", +x 512, -x, -y, +y 2048"
    events = events_of("+y 2048, +x 512, -x" + 4 * line)
    plan_file.write_bytes(encode_plan(plan_events(events, iterations=[4, 8, 12, 16])))
    assert read_plan(plan_file).iteration == (8, 12)

    scalars(iteration=None)(plan_file)
    with pytest.raises(PlanError, match="Expected the ticks of an iteration"):
        read_plan(plan_file)


def test_a_table_of_sizes_that_are_no_multiples_is_read_again(plan_file: Path) -> None:
    plan = plan_table(Buffers([0, 2], [2, 4], [100, 70], alignment=[64, 64]))
    plan_file.write_bytes(encode_plan(plan))
    again = read_plan(plan_file)

    assert (again.arena_bytes, again.lower_bound_bytes, again.of_table) == (100, 100, True)


REPEATING = events_of("+w 4096", *(f"+a{i} {i + 600}, +b{i} 2048, -a{i}, -b{i}" for i in range(5)))


@pytest.fixture
def repeating_file(plan_file: Path) -> Path:
    """Return the plan of five marked iterations, the third of which repeats."""
    plan = plan_events(REPEATING, iterations=[6, 10, 14, 18, 22], marked=True)
    plan_file.write_bytes(encode_plan(plan))
    return plan_file


def test_what_a_run_needs_comes_back_as_it_was(repeating_file: Path) -> None:
    run = run_plan(read_plan(repeating_file))

    assert (run.begins, run.marked, run.columns.period) == ((0, 3, 5), True, 2)
    assert run.size.tolist() == [4096, 600, 2048, 601, 2048, 602, 2048]
    assert run.varies.tolist() == [False, True, False, True, False, True, False]
    assert run.columns.offset.tolist() == [0, -1, 4096, -1, 4096, -1, 4096]
    assert run.columns.start.tolist()[-2:] == [0, 1]
    assert run.columns.end.tolist()[-2:] == [2, 2]


def test_a_plan_of_an_older_version_is_read_but_not_run(repeating_file: Path) -> None:
    changed(lambda plan: plan.pop("repetition"))(repeating_file)
    plan = read_plan(repeating_file)

    assert plan.iteration == (10, 14)
    with pytest.raises(PlanError, match="knows of no iterations that a run could repeat"):
        run_plan(plan)


def test_a_recording_that_begins_in_the_middle_cannot_be_run(repeating_file: Path) -> None:
    plan = read_plan(repeating_file)
    plan.lifetimes.start[0] = 0
    with pytest.raises(PlanError, match="begins with 1 storage in use"):
        run_plan(plan)


def repetition(name: str, value: object) -> Callable[[Path], None]:
    return changed(lambda plan: plan["repetition"].update({name: value}))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (repetition("begins", [0, 6, 11]), r"begin from 0 up to tick 10, got \(0, 6, 11\)"),
        (repetition("begins", [6, 0, 10]), r"begin from 0 up to tick 10, got \(6, 0, 10\)"),
        (repetition("begins", []), r"begin from 0 up to tick 10, got \(\)"),
        (repetition("begins", [0, 2**80]), "column begins holds a number beyond 64 bits"),
        (repetition("period", 0), "Expected a period of 1 to 11 requests, got 0"),
        (repetition("twin", [0]), "expected 11 rows in its column twin, got 1"),
        (repetition("twin", 11 * [11]), "Expected -1 to 10 in row 0 of its column twin, got 11"),
        (repetition("start", 11 * [2]), "to 1 in row 0 of its column start, got 2"),
        (repetition("end", 11 * [2**62 + 1]), "in row 0 of its column end"),
        (repetition("end", 11 * [100]), "Row 6 ends at request 100, later than any of it was"),
        (repetition("start", 11 * [-20]), "overlap"),
    ],
)
def test_iterations_that_cannot_be_are_refused(
    repeating_file: Path, damage: Callable[[Path], None], complaint: str
) -> None:
    damage(repeating_file)
    with pytest.raises(PlanError, match=complaint):
        read_plan(repeating_file)
