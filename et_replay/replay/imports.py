"""Names of modules in, their operators registered with torch out."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from keyword import iskeyword

from et_replay.errors import UsageError, headline


def import_modules(names: Iterable[str]) -> None:
    """Import what registers operators of other libraries; raises UsageError naming what fails.

    The names come from the user alone, never from a trace: importing runs code.
    """
    for name in names:
        if not all(part.isidentifier() and not iskeyword(part) for part in name.split(".")):
            raise UsageError(
                f"--import {name}: expected the name of a module, as Python writes it."
            )
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = "" if error.name == name else f", which needs {error.name}"
            raise UsageError(
                f"--import {name}{missing}: there is no such module here; install it, or add its"
                " folder to PYTHONPATH."
            ) from error
        except (Exception, SystemExit) as error:  # a module may do anything as it is imported
            reason = headline(error, qualified=False, whole=True)
            raise UsageError(f"--import {name} failed: {reason}.") from error
