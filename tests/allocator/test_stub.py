"""The hand-written stub of the extension names what the extension has."""

from __future__ import annotations

import ast
from pathlib import Path

from et_replay import _core

STUB = Path(__file__).parents[2] / "et_replay" / "_core.pyi"


def test_stub_declares_every_method_of_every_class() -> None:
    declared = {
        node.name: {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    classes = {name: value for name, value in vars(_core).items() if isinstance(value, type)}
    assert set(classes) <= set(declared)
    for name, value in classes.items():
        public = {member for member in vars(value) if not member.startswith("_")}
        assert public == declared[name] - {"__init__"}
