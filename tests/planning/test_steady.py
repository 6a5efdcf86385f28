"""What repeats in recorded events, and plans that hold for any number of its iterations."""

from __future__ import annotations

import numpy as np
import pytest
from planning.event_lines import events_of

from et_replay.errors import PlanError
from et_replay.events import AllocationEvents, MemoryHistory
from et_replay.planning import (
    Plan,
    StorageClass,
    fault_of,
    find_iterations,
    lifetimes,
    marked_iterations,
    plan_events,
    sizes_by_class,
)

MIB = 2**20


def job(iterations: int) -> AllocationEvents:
    """A weight; in every iteration an activation, a temporary, and a gradient that crosses over.

    The optimizer makes its state in the first iteration, which is therefore another.
    """
    lines = [f"+w {4 * MIB}, +g {2 * MIB}"]
    gradient = "g"
    for i in range(iterations):
        lines.append(f"+a{i} {3 * MIB}, +t{i} {MIB}, -t{i}, -{gradient}, +g{i} {2 * MIB}, -a{i}")
        gradient = f"g{i}"
        if i == 0:
            lines.append(f"+s {4 * MIB}")
    return events_of(*lines)


def offsets_of(plan: Plan, size: int) -> list[int]:
    return plan.offset[plan.lifetimes.size == size].tolist()


def planned(events: AllocationEvents) -> Plan:
    plan = plan_events(events, iterations=find_iterations(lifetimes(events)))
    assert fault_of(plan) == ""
    return plan


def test_iterations_begin_where_least_is_alive() -> None:
    # Two rows, then 7 of the first iteration, which makes the state, then 6 of each.
    assert find_iterations(lifetimes(job(5))) == (3, 10, 16, 22, 28)


def test_loops_over_layers_are_no_iterations() -> None:
    layers = "".join(f"+x{i} 700, -x{i}, +y{i} 800, -y{i}, " for i in range(6))
    step = [f"+a{i} 100, {layers} +b{i} 200, +c{i} 300, -c{i}, -a{i}, -b{i}" for i in range(4)]
    assert find_iterations(lifetimes(events_of(*step))) == (31, 61, 91)


@pytest.mark.parametrize("lines", ["", "+a 1", "+a 1, +b 2, +c 3, -a, -c, -b"])
def test_nothing_comes_again(lines: str) -> None:
    assert find_iterations(lifetimes(events_of(*filter(None, [lines])))) is None


def test_every_iteration_gets_the_addresses_of_the_template() -> None:
    plan = planned(job(6))

    assert plan.iteration == (10, 16)
    assert plan.covered.all()
    assert len(set(offsets_of(plan, 3 * MIB)[2:])) == 1
    assert len(set(offsets_of(plan, 2 * MIB)[3:])) == 1
    kinds = plan.lifetimes.storage_class[plan.lifetimes.size == 2 * MIB].tolist()
    assert kinds[3:] == [StorageClass.CROSSING] * 4


def test_the_plan_of_a_recording_holds_for_any_number_of_iterations() -> None:
    plan = planned(job(4))
    # Weight, state, activation, temporary and the gradient of the iteration before live together.
    assert plan.arena_bytes == plan.lower_bound_bytes == (4 + 4 + 3 + 1 + 2) * MIB


def test_sizes_that_vary_are_told_apart() -> None:
    lines = [
        f"+a{i} {MIB}, +b{i} {100 + i * 512}, +c{i} {2 * MIB}, -b{i}, -c{i}, -a{i}"
        for i in range(5)
    ]
    plan = planned(events_of(*lines))

    varying = ~np.isin(plan.lifetimes.size, [MIB, 2 * MIB])
    assert plan.iteration is not None
    later = plan.lifetimes.start >= plan.iteration[0]
    assert not plan.covered[varying & later].any()
    assert plan.covered[~varying].all()
    assert "do not come in every iteration with the same size" in plan.notes[0]


def test_a_request_that_only_some_iterations_have_moves_nothing_else() -> None:
    extra = ("", "", "", f"+x {5 * MIB}, -x, ", "")
    lines = [
        f"+a{i} {MIB}, {extra[i]}+b{i} {2 * MIB}, -b{i}, +c{i} {3 * MIB}, -c{i}, -a{i}"
        for i in range(5)
    ]
    plan = planned(events_of(*lines))

    assert plan.covered[plan.lifetimes.size != 5 * MIB].all()
    assert not plan.covered[plan.lifetimes.size == 5 * MIB].any()
    assert len(set(offsets_of(plan, 3 * MIB)[1:])) == 1
    assert plan.arena_bytes == 4 * MIB


def test_storages_that_are_never_freed_get_no_address() -> None:
    plan = planned(events_of(*(f"+a{i} {MIB}, +leak{i} 512, -a{i}" for i in range(4))))

    assert plan.iteration is not None
    leaks = (plan.lifetimes.size == 512) & (plan.lifetimes.start >= plan.iteration[0])
    assert not plan.covered[leaks].any()
    assert plan.covered[~leaks].all()


def test_a_late_free_in_one_iteration_counts_for_all() -> None:
    lines = [f"+a{i} {MIB}, -a{i}, +b{i} {MIB}, -b{i}, +c{i} {4 * MIB}, -c{i}" for i in range(5)]
    lines[3] = f"+a3 {MIB}, +b3 {MIB}, -a3, -b3, +c3 {4 * MIB}, -c3"
    plan = planned(events_of(*lines))

    a, b = offsets_of(plan, MIB)[-2:]
    assert a != b


def test_streams_do_not_share_memory() -> None:
    plan = plan_events(events_of(f"+a {MIB}, -a, +b {MIB} @7, -b, +c {MIB}, -c"))

    assert plan.offset.tolist() == [0, MIB, 0]
    assert plan.arena_bytes == plan.lower_bound_bytes == 2 * MIB
    assert "2 streams" in plan.notes[0]


def test_private_pools_are_left_to_the_caching_allocator() -> None:
    plan = plan_events(events_of(f"+a {MIB}, ( 3, +b {MIB}, ) 3, -b, -a"))

    assert plan.offset.tolist() == [0, -1]
    assert plan.arena_bytes == MIB
    assert plan.columns().storage.tolist() == [0]


def test_iterations_of_which_one_frees_nothing_are_refused() -> None:
    events = events_of("+a 512, -a, +b 512, -b, +c 512, +d 512")
    with pytest.raises(PlanError, match=r"does not repeat as one iteration does: .* overlap at"):
        plan_events(events, iterations=[1, 5])


def test_iterations_begin_with_the_first_event_after_their_mark() -> None:
    events = job(2)
    times = np.arange(1000, 1000 + 10 * len(events), 10)
    times[4], times[5] = times[5], times[4]  # two threads
    history = MemoryHistory("by hand", "memory snapshot", events, 0 * times, times=times)

    last = int(times[-1])
    assert marked_iterations(history, [999, 1000, 1011, last, last + 1]) == (
        *(1, 1, 3),
        *(len(events), len(events) + 1),
    )


def test_a_history_that_does_not_tell_times_has_no_marks() -> None:
    events = job(2)
    history = MemoryHistory("by hand", "memory snapshot", events, np.zeros(len(events), np.int64))
    assert marked_iterations(history, [1, 2]) == ()


def test_what_follows_the_last_mark_is_no_iteration() -> None:
    lines = [f"+a{i} {MIB}, -a{i}, +b{i} {2 * MIB}, -b{i}" for i in range(4)]
    evaluation = "+e 100, -e, +f 200, -f, +g 300, -g"
    events = events_of(*lines, evaluation)
    plan = plan_events(events, iterations=[5, 9, 13, 17], marked=True)

    assert plan.repetition is not None
    assert (plan.iteration, plan.repetition.period) == ((9, 13), 2)
    assert plan.covered.tolist() == 8 * [True] + 3 * [False]


def test_of_two_marked_iterations_the_first_is_planned_with_what_the_second_frees() -> None:
    lines = [f"+a{i} {3 * MIB}, -g{i}, +g{i + 1} {2 * MIB}, -a{i}" for i in range(2)]
    events = events_of(f"+g0 {2 * MIB}", *lines)
    plan = plan_events(events, iterations=[2, 6, 10], marked=True)

    assert plan.iteration == (2, 6)
    assert sizes_by_class(plan.lifetimes) == {
        StorageClass.PASSING: (3, 8 * MIB),
        StorageClass.CROSSING: (2, 4 * MIB),
    }
