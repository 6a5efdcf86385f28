"""Builds the native core and its programs with sanitizers, once a session and without Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TOOLS = TESTS / "tools"
ROOT = TESTS.parents[1]
ALLOCATOR = ROOT / "allocator"
PLANNER = ROOT / "planner"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
FLAGS = ["-std=c++17", "-O1", "-g", f"-I{ROOT}", f"-I{ALLOCATOR}", f"-I{TOOLS}", f"-I{TESTS}"]
MAINS = {"core_tests": TESTS / "main.cpp"} | {
    name: TOOLS / f"{name}.cpp" for name in ("fuzz", "run_program")
}


def sources() -> Iterator[Path]:
    yield from (path for path in ALLOCATOR.glob("*.cpp") if not path.stem.endswith("bindings"))
    yield from PLANNER.glob("*.cpp")
    yield from (path for path in TESTS.glob("*.cpp") if path.stem != "fake_cuda")
    yield from (TESTS.parent / "planner").glob("*.cpp")
    yield from TOOLS.glob("*.cpp")


@pytest.fixture(scope="session")
def native_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what links a program by its name; all share the objects of the core."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("neither g++ nor clang++ is installed")
    folder = tmp_path_factory.mktemp("core")

    def compile_object(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        command = [compiler, *FLAGS, *WARNINGS, *SANITIZERS, "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(zip(sources(), pool.map(compile_object, sources()), strict=True))

    def link(name: str) -> Path:
        program = folder / name
        others = set(MAINS.values()) - {MAINS[name]}
        parts = [str(target) for source, target in objects.items() if source not in others]
        subprocess.run([compiler, *SANITIZERS, *parts, "-o", str(program)], check=True)
        return program

    return link
