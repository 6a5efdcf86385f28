"""Fixtures for every test: real data that lies beside the checkout, a GPU where there is one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_configure() -> None:
    """Let Ctrl-C be Ctrl-C, for tests of it: a shell's background job starts with it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real traces, snapshots and allocator recordings."""
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there; it holds real data that is not part of the repository")
    return DATA


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked `cuda` where torch sees no GPU."""
    if item.get_closest_marker("cuda") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch sees no NVIDIA GPU")
