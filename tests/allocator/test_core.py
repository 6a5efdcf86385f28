"""The native core's own tests and its fuzzer: plain programs, built with sanitizers, and run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

Link = Callable[[str], Path]


def test_core_passes_under_sanitizers(native_program: Link) -> None:
    outcome = subprocess.run([native_program("core_tests")], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stdout.endswith(" passed, 0 failed\n")


def test_random_bytes_find_no_broken_state(native_program: Link) -> None:
    command = [str(native_program("fuzz")), "--random", "3000", "1"]
    outcome = subprocess.run(command, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr


def test_a_file_of_bytes_is_run(native_program: Link, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(256)) * 4)
    outcome = subprocess.run([native_program("fuzz"), file], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
