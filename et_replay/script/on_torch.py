"""The environment of a script's process in, its role begun out, once the script imported torch.

What a process does that never imports torch costs one look at each name it imports.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

VARIABLE = "ET_REPLAY_SCRIPT"
"""The environment variable that tells all processes of a script their role, as JSON."""


def look_out() -> None:
    """Begin the role that the environment tells as soon as torch is imported."""
    if os.environ.get(VARIABLE):
        sys.meta_path.insert(0, _TorchFinder())


class _TorchFinder:
    """Finds torch as the finders after it do, and begins the role after it has been executed."""

    def __init__(self) -> None:
        self._looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch" or self._looking:
            return None
        from importlib.util import find_spec

        self._looking = True
        try:
            spec = find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            self._follow(spec)
        return spec

    def _follow(self, spec: ModuleSpec) -> None:
        """Let the role begin at the end of the loader's work; many look for torch and load none."""
        loader = spec.loader
        execute: Callable[[ModuleType], None] = loader.exec_module  # type: ignore[union-attr]

        def execute_and_begin(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _begin()

        loader.__dict__["exec_module"] = execute_and_begin


def _begin() -> None:
    """Hand the settings to the package of this process's role; its failure is not the script's."""
    from et_replay.errors import headline
    from et_replay.script.telling import tell

    try:
        import json
        from importlib import import_module

        settings = json.loads(os.environ[VARIABLE])
        import_module(f"et_replay.{settings['role']}").begin(settings)
    except Exception as error:
        tell(f"warning: the script runs without et_replay: {headline(error)}")
