"""Ends of iterations are found in whatever a script does with torch."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch.profiler import profile, record_function, schedule

from et_replay.script.iterations import (
    annotations_seen,
    is_watched,
    mark_iteration,
    watch_iterations,
)

STEP = "optimizer step"


class Seen(list[str]):
    """What was called, in order; `outside` is a bar."""

    def watch(self, mark: str | None = None) -> None:
        self.stop = watch_iterations(self.append, mark, lambda: self.append("|"))

    def taken(self) -> list[str]:
        seen = list(self)
        self.clear()
        return seen


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    seen.watch()
    yield seen
    seen.stop()


@pytest.fixture
def seen_marks() -> Iterator[Seen]:
    seen = Seen()
    seen.watch("step*")
    yield seen
    seen.stop()


def sgd() -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return torch.optim.SGD([weight], lr=0.1)


def test_each_optimizer_step_ends_an_iteration(seen: Seen) -> None:
    optimizer = sgd()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.step()
    assert seen == [STEP, "|", STEP, "|"]


def test_an_optimizer_and_its_scheduler_may_be_older_than_the_watch() -> None:
    optimizer = sgd()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    seen = Seen()
    seen.watch()
    optimizer.step()
    scheduler.step()
    seen.stop()
    assert seen == [STEP, "|"]
    assert scheduler.get_last_lr() == [0.05]


def test_of_two_optimizers_the_first_to_step_counts(seen: Seen) -> None:
    first, second = sgd(), sgd()
    for _ in range(2):
        first.step()
        second.step()
        second.step()
    assert seen == [STEP, "|", STEP, "|"]


def test_another_optimizer_counts_once_the_first_is_gone(seen: Seen) -> None:
    sgd().step()
    other = sgd()
    other.step()
    assert seen == [STEP, "|", STEP, "|"]


def test_a_step_within_a_step_is_part_of_it(seen: Seen) -> None:
    class Wrapped(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            super().step()
            super().step()

    Wrapped([torch.nn.Parameter(torch.ones(2))], lr=0.1).step()
    assert seen == [STEP, "|"]


def test_a_step_that_raises_ends_no_iteration(seen: Seen) -> None:
    def fail() -> float:
        raise ValueError

    optimizer = sgd()
    with pytest.raises(ValueError):
        optimizer.step(fail)
    assert seen == []


def test_a_step_that_the_gradient_scaler_skips_counts(seen: Seen) -> None:
    optimizer = sgd()
    weight = optimizer.param_groups[0]["params"][0]
    scaler = torch.amp.GradScaler("cpu")
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert seen == [STEP, "|", STEP, "|"]


def test_marks_that_enclose_the_step_close_before_outside_is_called(seen: Seen) -> None:
    optimizer = sgd()
    optimizer.step()
    with record_function("iteration"), record_function("update"):
        optimizer.step()
        seen.append("in the marks")
    assert seen == [STEP, "|", STEP, "in the marks", "|"]


def test_a_mark_around_the_whole_loop_is_outside(seen: Seen) -> None:
    optimizer = sgd()
    with record_function("epoch"):
        optimizer.step()
        with record_function("update"):
            optimizer.step()
    assert seen == [STEP, "|", STEP, "|"]


def test_the_steps_of_a_profiler_replace_those_of_optimizers_while_it_runs(seen: Seen) -> None:
    optimizer = sgd()
    with profile(schedule=schedule(wait=1, warmup=1, active=1)) as profiler:
        for _ in range(2):
            optimizer.step()
            profiler.step()
    assert seen.taken() == ["mark ProfilerStep#0", "|", "mark ProfilerStep#1", "|"]
    optimizer.step()
    assert seen == [STEP, "|"]


def test_a_profiler_without_a_schedule_steps_too(seen: Seen) -> None:
    with profile() as profiler:
        profiler.step()
        profiler.step()
    assert seen == ["profiler step", "|", "profiler step", "|"]


def test_marks_named_like_a_profilers_count(seen: Seen) -> None:
    optimizer = sgd()
    for number in range(2):
        with record_function(f"ProfilerStep#{number}"):
            optimizer.step()
    assert seen == ["mark ProfilerStep#0", "|", "mark ProfilerStep#1", "|"]


def test_calls_replace_optimizer_steps(seen: Seen) -> None:
    optimizer = sgd()
    mark_iteration()
    optimizer.step()
    mark_iteration()
    assert seen == ["mark_iteration()", "|", "mark_iteration()", "|"]


def test_with_a_mark_nothing_else_counts(seen_marks: Seen) -> None:
    optimizer = sgd()
    for number in range(2):
        with record_function(f"step {number}"):
            optimizer.step()
        mark_iteration()
    with record_function("other step"):
        pass
    assert seen_marks == ["mark step 0", "|", "mark step 1", "|"]


def test_annotations_that_are_not_the_mark_are_named(seen_marks: Seen) -> None:
    for number in range(3):
        with record_function(f"forward {number}"), record_function("loss"):
            sgd().step()
    assert annotations_seen() == ["forward *", "loss"]
    assert seen_marks == []


def test_several_ends_in_a_row_are_one_each(seen_marks: Seen) -> None:
    for _ in range(3):
        with record_function("step"):
            pass
    assert seen_marks == ["mark step", "|"] * 3


def test_gradients_that_are_cleared_tell_where_steps_do_not(seen: Seen) -> None:
    optimizer = sgd()
    for _ in range(3):
        optimizer.zero_grad()
    assert seen.taken() == ["zero_grad", "|", "zero_grad", "|"]
    optimizer.step()
    optimizer.zero_grad()
    assert seen == [STEP, "|"]


def test_other_threads_than_that_of_the_first_end_do_not_count(seen: Seen) -> None:
    optimizer = sgd()
    optimizer.step()
    thread = threading.Thread(target=optimizer.step)
    thread.start()
    thread.join()
    assert seen == [STEP, "|"]


def test_what_a_callback_raises_is_told_and_ends_the_watch(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(by: str) -> None:
        raise ValueError(f"no {by}")

    stop = watch_iterations(fail)
    sgd().step()
    stop()
    assert not is_watched()
    err = capfd.readouterr().err
    assert err == (
        "et_replay: warning: iterations are no longer watched: ValueError: no optimizer step\n"
    )


def test_the_end_of_the_watch_leaves_torch_as_it_was() -> None:
    names = [(record_function, "__enter__"), (record_function, "__exit__"), (profile, "step")]
    before = [owner.__dict__[name] for owner, name in names]
    seen = Seen()
    seen.watch()
    assert [owner.__dict__[name] for owner, name in names] != before
    seen.stop()
    assert [owner.__dict__[name] for owner, name in names] == before
    mark_iteration()
    assert seen == []


def test_only_one_watches(seen: Seen) -> None:
    with pytest.raises(RuntimeError, match="watched already"):
        watch_iterations(print)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_functions_may_hold_marks(seen: Seen) -> None:
    def marked(value: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("part"):
            return value + 1

    assert torch.jit.script(marked)(torch.ones(1)).tolist() == [2.0]
