"""A plan file, or a folder with one for each rank or input, in; the files that are meant, out."""

from __future__ import annotations

import os
from pathlib import Path

from et_replay.captured_files import PLAN, captured_file
from et_replay.errors import UsageError


def plans_in(plan: str, *, of_ranks: bool = False) -> list[Path]:
    """List the plans in a folder, of ranks alone or of any inputs; of a file, that itself.

    Raises UsageError where the folder holds none.
    """
    if not os.path.isdir(plan):
        return [Path(plan)]
    names = captured_file(Path(), "*", PLAN).name if of_ranks else f"*.{PLAN}"
    files = sorted(Path(plan).glob(names))
    if not files:
        lack = f"rank-R.{PLAN}, which" if of_ranks else "plan, such as"
        raise UsageError(f"The folder {plan} holds no {lack} et_replay plan writes.")
    return files


def plan_in(plan: str, name: str) -> Path:
    """Return the plan called `name` in a folder, there or not; of a file, that itself."""
    return Path(plan) / name if os.path.isdir(plan) else Path(plan)
