"""What ranks say, and which of them says it, when they have to end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from et_replay.replay.communication import watch as watching
from et_replay.replay.communication.watch import Watch


class Rendezvous:
    """A store of this process alone."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def add(self, key: str, value: int) -> int:
        self.values[key] = str(int(self.values.get(key, "0")) + value)
        return int(self.values[key])

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


class Exited(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise Exited(code)

    monkeypatch.setattr(watching, "TICK", 0.02)
    monkeypatch.setattr(watching, "_SILENT", 0.08)
    monkeypatch.setattr(os, "_exit", end)


def watch(store: Rendezvous, rank: int, timeout: float = 60) -> tuple[Watch, list[str]]:
    said: list[str] = []
    return Watch(store, rank, 3, timeout, said.append), said


def test_the_first_rank_to_fail_says_why() -> None:
    store = Rendezvous()

    assert watch(store, 1)[0].tell("Rank 1: no room.")
    assert not watch(store, 2)[0].tell("Rank 2: no room.")


def test_a_broken_connection_is_not_reported_where_another_rank_has_said_why() -> None:
    store = Rendezvous()
    watch(store, 1)[0].tell("Rank 1: no room.")

    assert watch(store, 0)[0].lost("Rank 0: broken") is None


def test_a_rank_that_gives_no_sign_of_life_is_named() -> None:
    store = Rendezvous()
    store.set("et_replay/beat/1", "7")
    store.set("et_replay/beat/2", "7")
    alive, _ = watch(store, 0)
    alive.enter("all_reduce, node 812, group (0..2)", lambda: False)

    assert alive.lost("Rank 0: broken") == (
        "Ranks 1 and 2 ended without a word while rank 0 waits in all_reduce, node 812,"
        " group (0..2)."
    )


def test_a_collective_that_does_not_end_tells_what_every_rank_waits_for() -> None:
    store = Rendezvous()
    store.set("et_replay/waits/1", "rank 1 waits in barrier, node 5, group (0, 1)")
    store.set("et_replay/waits/2", "rank 2 computes after barrier, node 4, group (0, 1)")
    waiting, said = watch(store, 0, timeout=0.01)
    waiting.enter("barrier, node 5, group (0, 1)", lambda: False)
    time.sleep(0.02)

    with pytest.raises(Exited):
        waiting._look(terminated=False)

    assert said == [
        "et_replay: error: No collective ended for 0.01 s: ranks 0 and 1 wait in barrier, node 5,"
        " group (0, 1); rank 2 computes after barrier, node 4, group (0, 1)."
    ]


def test_a_rank_computes_before_its_first_collective_only_where_it_has_one() -> None:
    alone, _ = watch(Rendezvous(), 0)
    assert alone._state() == "rank 0 computes"

    alone.expect_collectives()
    assert alone._state() == "rank 0 computes before its first collective"

    alone.enter("barrier, node 4, group (0, 1)", lambda: True)
    alone.enter("barrier, node 5, group (0, 1)", lambda: True)
    assert alone._state() == "rank 0 computes after barrier, node 4, group (0, 1)"


def test_of_many_ranks_that_wait_alike_the_first_are_named() -> None:
    texts = [f"rank {rank} waits in barrier" for rank in range(12)]

    assert watching._alike([*texts, "rank 12 is silent"]) == [
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more wait in barrier",
        "rank 12 is silent",
    ]
    assert watching._alike(["rank 0 computes", "rank 1 computes"]) == ["ranks 0 and 1 compute"]


def test_a_rank_that_is_told_to_end_says_nothing_more() -> None:
    store = Rendezvous()
    watch(store, 1)[0].tell("Rank 1: no room.")
    other, said = watch(store, 0)

    with pytest.raises(Exited):
        other._look(terminated=False)

    assert said == []


def test_the_thread_leaves_it_to_the_main_one_to_say_why_it_ends() -> None:
    store = Rendezvous()
    failing, said = watch(store, 1)
    failing.claim()
    failing.tell("Rank 1: no room.")

    failing._look(terminated=True)

    assert said == []


def test_of_ranks_that_control_c_reaches_one_says_so() -> None:
    store = Rendezvous()
    ranks = [watch(store, rank) for rank in range(3)]
    codes = []
    for each, _ in ranks:
        each._received.add(signal.SIGINT)
        with pytest.raises(Exited) as exited:
            each._look(terminated=True)
        codes += exited.value.args

    assert [said for _, said in ranks] == [["et_replay: interrupted"], [], []]
    assert codes == [130, 130, 130]


@pytest.mark.parametrize(("size", "of_python"), [(1, True), (3, False)])
def test_control_c_is_left_to_python_where_there_is_one_rank(size: int, of_python: bool) -> None:
    looking = Watch(Rendezvous(), 0, size, 60, lambda sentence: None)
    looking.start()
    during = signal.getsignal(signal.SIGINT)
    looking.stop()

    assert (during is signal.default_int_handler) == of_python
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_rank_that_control_c_ends_ends_its_own_processes() -> None:
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    child.start()
    interrupted, _ = watch(Rendezvous(), 0)
    interrupted._received.add(signal.SIGINT)

    with pytest.raises(Exited):
        interrupted._look(terminated=True)

    child.join(10)
    assert child.exitcode == -signal.SIGTERM
