"""Planning that ends before it is done: by Ctrl-C, and by timeouts too long to count."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from et_replay.planning import Buffers, Effort, Packing, plan_buffers


def long_to_plan() -> Buffers:
    """Return 20,000 buffers whose lower bound is out of reach: tens of seconds of search."""
    random = np.random.default_rng(5)
    start = random.integers(0, 100_000, 20_000)
    end = start + random.integers(1, 4_000, 20_000)
    return Buffers(start, end, random.integers(1, 10**9, 20_000))


def test_ctrl_c_ends_the_search() -> None:
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        plan_buffers(long_to_plan(), Effort("best"))
    assert time.monotonic() - began < 5


def test_a_thread_that_sees_no_signals_plans_as_well() -> None:
    found: list[Packing] = []
    plan = Buffers([0, 2], [4, 8], [8, 8])
    thread = threading.Thread(target=lambda: found.append(plan_buffers(plan)))
    thread.start()
    thread.join()
    assert found[0].arena_bytes == 16


@pytest.mark.parametrize("seconds", [9.3e9, 99999999999.0, 1e18, 1e300])
def test_a_timeout_of_centuries_is_none(seconds: float) -> None:
    random = np.random.default_rng(2)
    start = random.integers(0, 400, 200)
    end = start + random.integers(1, 60, 200)
    buffers = Buffers(start, end, random.integers(1, 10**6, 200))
    unlimited, limited = plan_buffers(buffers), plan_buffers(buffers, Effort(timeout=seconds))
    assert limited.offsets.tolist() == unlimited.offsets.tolist()
    assert limited.arena_bytes == 12145832  # at once there is one of 13842451
