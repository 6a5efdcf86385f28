"""How a script is to be served, as its processes are told."""

from __future__ import annotations

import msgspec

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
