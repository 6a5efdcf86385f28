"""The architecture holds: modules import, and native files include, only floors below theirs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FLOORS = (
    ("__init__", "errors"),
    ("units", "origins", "whole_files", "parallel", "replay_modes"),
    ("captured_files", "execution_trace", "events", "allocator_figures"),
    ("buffers", "held_ranges"),
    ("formats", "_core"),
    ("program", "simulation", "planning", "utils"),
    ("serving", "ranks"),
    ("comparison", "explain", "memory_map"),
    ("pluggable", "script", "torch_settings"),
    ("replay", "capture", "run"),
    ("report",),
    ("commands",),
    ("__main__",),
)
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}
STANDARD = sys.stdlib_module_names | {"compression"}  # which Python has from 3.14 on
EVERYWHERE = {"msgspec", "numpy"}
THIRD_PARTIES = {
    "errors": set(),
    "units": set(),
    "formats": EVERYWHERE | {"google", "zstandard"},
    "parallel": {"joblib"},
    "replay": EVERYWHERE | {"torch"},
    "pluggable": EVERYWHERE | {"torch"},
    "script": {"torch"},
    "torch_settings": {"torch"},
    "capture": EVERYWHERE | {"torch"},
    "run": EVERYWHERE | {"torch"},
    "report": EVERYWHERE | {"matplotlib"},
    "commands": EVERYWHERE | {"tqdm"},
}
NATIVE_FLOORS = (
    ("sizes", "version", "rank_set", "storage_table"),
    ("held_ranges",),
    ("problem", "budget", "deadline", "random", "workers"),
    ("address_union", "remaining", "skyline", "sweep", "validate"),
    ("checks",),
    ("settings", "block", "statistics", "trace", "stream_events", "handover", "expandable_segment"),
    ("normal", "plan_table", "planned_figures", "request_index"),
    ("request_list",),
    ("contest", "exhaustive", "first_fit", "online_fit", "orders", "rotation", "unplaced"),
    ("core", "descent_orders", "frontier", "order_family", "packing"),
    ("look_ahead",),
    ("canonical_descent",),
    ("descent",),
    ("trail", "level_set"),
    ("bound_history",),
    ("partial_packing",),
    ("branching", "inference"),
    ("backjumping",),
    ("exact",),
    ("part_search",),
    ("planner",),
    ("setting_reader", "rounding", "free_list", "device", "schedule"),
    ("setting_options", "roundup_divisions", "pool", "allocator", "idle_space", "occupancy"),
    ("private_pools", "uncached", "out_of_memory"),
    ("pending_frees",),
    ("caching",),
    ("growth", "expandable", "garbage_collection", "release", "restore", "planned"),
    ("planned_arena", "policies", "follower"),
    ("simulation", "cuda_driver"),
    ("cuda_device",),
    ("pluggable",),
    ("torch_interface",),
    ("figure_bindings", "plan_bindings", "planner_bindings"),
    ("pluggable_bindings",),
    ("bindings",),
)
NATIVE_FLOOR = {name: floor for floor, names in enumerate(NATIVE_FLOORS) for name in names}
ONLY_IN_COMMANDS = {"argparse", "logging"}

MODULES = sorted((ROOT / "et_replay").rglob("*.py"))
NATIVE_FILES = sorted(f for part in ("planner", "allocator") for f in (ROOT / part).glob("*.?pp"))


def imports(module: Path) -> Iterator[str]:
    """Yield the dotted names that `module` imports, wherever in it."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} has a relative import"
            if node.module == "et_replay":
                yield from (f"et_replay.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def part(module: Path) -> str:
    """Return the name by which FLOORS knows the module or the package that it is in."""
    return module.relative_to(ROOT / "et_replay").parts[0].removesuffix(".py")


def identify(module: Path) -> str:
    return str(module.relative_to(ROOT))


@pytest.mark.parametrize("module", MODULES, ids=identify)
def test_a_module_imports_only_floors_below(module: Path) -> None:
    here = part(module)
    for name in imports(module):
        package, _, rest = name.partition(".")
        if package != "et_replay":
            continue
        there = rest.partition(".")[0]
        there = there if there in FLOOR else "__init__"
        assert there == here or FLOOR[there] < FLOOR[here], f"{here} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=identify)
def test_a_module_imports_only_the_third_parties_of_its_floor(module: Path) -> None:
    here = part(module)
    for name in imports(module):
        package = name.partition(".")[0]
        if package in ONLY_IN_COMMANDS:
            assert here == "commands", f"{here} imports {name}"
        elif package != "et_replay" and package not in STANDARD:
            assert package in THIRD_PARTIES.get(here, EVERYWHERE), f"{here} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=identify)
def test_only_commands_print(module: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)]
    prints = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
    becomes_another_program = module.name == "dumped.py"
    assert not prints or part(module) == "commands" or becomes_another_program


@pytest.mark.parametrize("file", NATIVE_FILES, ids=identify)
def test_a_native_file_includes_only_floors_below(file: Path) -> None:
    for name in re.findall(r'^#include "(?:\w+/)?(\w+)\.hpp"', file.read_text(), re.MULTILINE):
        own_header = name == file.stem and file.suffix == ".cpp"
        assert own_header or NATIVE_FLOOR[name] < NATIVE_FLOOR[file.stem]


@pytest.mark.parametrize("file", NATIVE_FILES, ids=identify)
def test_only_the_bindings_know_python(file: Path) -> None:
    includes = re.findall(r"^#include <(nanobind/|Python)", file.read_text(), re.MULTILINE)
    assert not includes or file.stem.endswith("bindings")
