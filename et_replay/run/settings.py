"""How a script is to be served, as its processes are told."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from et_replay.captured_files import PLAN, captured_file
from et_replay.errors import UsageError
from et_replay.simulation import PLANNED

PLANNED_RUN = f"{PLANNED}:expandable_segments:True"
"""What serves a plan: requests of ever other sizes reserve least where segments expand."""


class RunSettings(msgspec.Struct, frozen=True):
    """What serves each process, and whom it tells of it.

    `plan` is a plan file, or a folder with one for each rank; `device_memory` in bytes, None is
    all; `mark` names the marks that iterations end with; `messages` is the pipe of a Mailbox.
    """

    allocator: str
    messages: str
    plan: str | None = None
    device_memory: int | None = None
    mark: str | None = None


def plan_files(plan: str) -> list[Path]:
    """List the plans of all ranks, in a folder; raises UsageError where it holds none."""
    if not os.path.isdir(plan):
        return [Path(plan)]
    files = sorted(Path(plan).glob(captured_file(Path(), "*", PLAN).name))
    if not files:
        raise UsageError(f"The folder {plan} holds no rank-R.{PLAN}, which et_replay plan writes.")
    return files


def plan_file(plan: str, rank: int) -> Path:
    """Return the plan of a rank: the file itself, or that of its name in a folder."""
    return captured_file(Path(plan), rank, PLAN) if os.path.isdir(plan) else Path(plan)
