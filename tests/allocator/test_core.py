"""The native core's own tests: built as a plain program with sanitizers, and run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ALLOCATOR = TESTS.parents[1] / "allocator"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
FLAGS = ["-std=c++17", "-O1", "-g", *WARNINGS, *SANITIZERS]


def test_core_passes_under_sanitizers(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("neither g++ nor clang++ is installed")
    core = [path for path in ALLOCATOR.glob("*.cpp") if path.name != "bindings.cpp"]
    sources = map(str, [*TESTS.glob("*.cpp"), *core])
    program = str(tmp_path / "core_tests")
    subprocess.run([compiler, *FLAGS, f"-I{ALLOCATOR}", *sources, "-o", program], check=True)
    outcome = subprocess.run([program], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stdout.endswith(" passed, 0 failed\n")
