"""What a GPU is given to do before an iteration that is timed."""

from __future__ import annotations

import time

import pytest
import torch

from et_replay.replay.lead import Lead

GPU = torch.device("cuda", 0)
MS = 1_000_000


class Told:
    """An iteration that takes its host 2 ms, and ranks of which another one takes 5 ms."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.asked: list[int] = []

    def run(self, first: bool) -> None:
        self.done.append(f"run {first}")
        time.sleep(0.002)

    def longest(self, time: int) -> int:
        self.asked.append(time)
        return 5 * MS

    def meet(self) -> bool:
        self.done.append("meet")
        return True


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: told.done.append(f"sleep {cycles}"))
    return told


def test_collectives_alone_are_launched_while_the_gpu_is_held_and_begin_on_all_at_once(
    told: Told,
) -> None:
    lead = Lead(told, GPU, True, told)
    told.done.clear()

    assert lead.take()
    assert told.asked[0] >= 2 * MS  # what this host took
    assert told.done == ["sleep 20000000", "meet"]  # 4 cycles a ns of the slowest one's 5 ms


def test_other_iterations_follow_one_as_in_a_job(told: Told) -> None:
    assert not Lead(told, GPU, False, told).take()
    assert told.done == ["run False"]


@pytest.mark.parametrize("only", [True, False])
def test_a_host_that_computes_itself_has_no_lead(told: Told, only: bool) -> None:
    Lead(told, torch.device("cpu"), only, told).take()

    assert told.done == []
