"""Work in parallel: results in order, by every backend, and a backend that is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from et_replay.errors import EtReplayError, UsageError
from et_replay.parallel import in_parallel, untold_of_forgotten_work

TASKS = [(7, 2), (9, 4), (23, 5)]
RESULTS = [(3, 1), (2, 1), (4, 3)]
INTERRUPTED = """
import os, signal, sys, threading, time
from joblib.externals.loky.backend import fork_exec as starting
from et_replay.parallel import in_parallel

start = starting.fork_exec

def control_c():
    os.killpg(0, signal.SIGINT)

def start_and_interrupt(*arguments, **keywords):
    process = start(*arguments, **keywords)
    time.sleep(0.2)  # in which it imports
    control_c()
    return process

if __name__ == "__main__":
    if sys.argv[1] == "start":
        starting.fork_exec = start_and_interrupt
    try:
        for _ in in_parallel(time.sleep, [(0,), (60,), (60,)], 2, "loky"):
            if sys.argv[1] == "work":
                threading.Timer(0.2, control_c).start()
            if sys.argv[1] == "use":
                control_c()
            if sys.argv[1] == "terminate":
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


@pytest.mark.parametrize(
    ("backend", "package"),
    [("loky", "joblib"), ("threading", "joblib"), ("dask", "distributed"), ("ray", "ray")],
)
def test_results_come_in_the_order_of_the_tasks(backend: str, package: str) -> None:
    pytest.importorskip(package)
    assert list(in_parallel(divmod, TASKS, 2, backend)) == RESULTS


def test_what_a_task_raises_is_no_matter_of_the_backend() -> None:
    with pytest.raises(ValueError, match="invalid literal for int"):
        list(in_parallel(int, [("7",), ("x",)], 1, "loky"))


def test_a_worker_that_ends_is_told_in_a_sentence() -> None:
    with pytest.raises(EtReplayError, match="A process that worked on a part ended without"):
        list(in_parallel(os._exit, [(1,), (1,)], 2, "loky"))


def test_a_backend_that_joblib_does_not_know_is_named() -> None:
    with pytest.raises(
        UsageError, match="--backend nothing is none that joblib knows, expected loky"
    ):
        list(in_parallel(divmod, TASKS, 2, "nothing"))


def test_a_limit_of_processes_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "many")
    with pytest.raises(UsageError, match="LOKY_MAX_CPU_COUNT, which limits"):
        list(in_parallel(divmod, TASKS, None, "loky"))


@pytest.mark.parametrize(
    ("backend", "module", "package"),
    [("dask", "distributed", r"dask\[distributed\]"), ("ray", "ray.util.joblib", "ray")],
)
def test_a_cluster_whose_package_is_missing_is_told(
    backend: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=f"--backend {backend} needs .* pip install '{package}'"):
        list(in_parallel(divmod, TASKS, 2, backend))


@pytest.mark.parametrize("when", ["start", "work", "use"])
def test_control_c_ends_all_processes_without_a_word_of_their_own(
    when: str, tmp_path: Path
) -> None:
    """It comes while workers start, while their results are awaited, and while they are used."""
    assert ended(tmp_path, when) == (1, "", "interrupted\n")


def test_of_forgotten_work_only_the_thread_of_loky_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: told.append(failure.thread.name))
    with untold_of_forgotten_work():
        for name in ("ExecutorManagerThread", "another"):
            thread = threading.Thread(name=name, target={}.__getitem__, args=("work",))
            thread.start()
            thread.join()
    assert told == ["another"]


def test_sigterm_ends_all_processes_without_a_word(tmp_path: Path) -> None:
    assert ended(tmp_path, "terminate") == (143, "", "")


def ended(folder: Path, when: str) -> tuple[int, str, str]:
    """Run what is interrupted `when` it says, with all that it starts; return what it leaves."""
    script = folder / "interrupted.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, str(script), when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed = process.communicate(timeout=30)
        assert _is_over(process.pid, 20)
        return process.returncode, *printed
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _is_over(group: int, seconds: float) -> bool:
    """Tell whether no process of a group is left, `seconds` from now at the latest."""
    end = time.monotonic() + seconds
    with suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.05)
        return False
    return True
