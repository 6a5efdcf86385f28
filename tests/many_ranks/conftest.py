"""Fixtures for tests with several processes: torchrun, and jobs of 2 and 4 ranks, captured once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import et_replay

TRAIN = Path(__file__).resolve().parents[2] / "traces" / "train_ranks.py"
Launch = Callable[..., "subprocess.CompletedProcess[str]"]
Capture = Callable[[str, int], Path]


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Return the environment of processes that find this et_replay; skip without gloo."""
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch is built without torch.distributed, or without gloo")
    paths = [str(Path(et_replay.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def launch(environment: dict[str, str]) -> Launch:
    """Return what runs words under torchrun; after `timeout` seconds it ends them and fails."""

    def run(processes: int, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
        command = [sys.executable, *launcher, *words]
        return finished(start(command, environment), timeout)

    return run


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Wait for a process and all that it started."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # for torchrun to end its ranks, which are in others
        try:
            out, err = process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = "", "nor did it end when it was asked to"
        pytest.fail(f"not done after {timeout} s\n{out}\n{err}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Capture:
    """Return what captures a job of traces/train_ranks.py, the first time that it is asked for."""
    folders: dict[tuple[str, int], Path] = {}

    def capture(job: str, ranks: int) -> Path:
        if (job, ranks) not in folders:
            folder = tmp_path_factory.mktemp(f"{job}{ranks}") / "captured"
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
            recorder = [sys.executable, "-m", "et_replay", "capture", "--iterations", "2"]
            script = [str(TRAIN), job, "--device", "cpu", "--iterations", "5"]
            command = [*recorder, "--output", str(folder), "--", *launcher, *script]
            done = finished(start(command, environment), 120)
            assert done.returncode == 0, done.stderr
            folders[job, ranks] = folder
        return folders[job, ranks]

    return capture
