"""The options of all processes of a replay in; a refusal out where those differ that must not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from et_replay.commands import options
from et_replay.commands.session import Session
from et_replay.errors import UsageError

_OWN = {
    *("trace", "config", "json", "plan", "profile", "execution_trace"),  # files of its host
    *("dump", "page", "update_config"),
    *("force", "quiet", "verbose", "explain", "run"),  # of what is told, and how
    *("given", "spelled"),
    "device_memory",  # hosts may differ
    *("device", "replay_mode"),  # which are compared as they are understood
}
"""Where the options are kept of which each process may have its own."""


def check_equal(session: Session, arguments: argparse.Namespace, mode: str) -> None:
    """Refuse, in all processes alike, options that are not the same in all; all come here.

    Processes that run other iterations, or make other calls, would wait for each other until the
    connection times out.
    """
    mine = {"replay_mode": mode, "device": session.target.device.type}
    mine |= {name: _text(value) for name, value in vars(arguments).items() if name not in _OWN}
    if sentence := difference(session.world.gather_to_all(mine)):
        raise UsageError(sentence)


def difference(told: Sequence[Mapping[str, str]]) -> str:
    """Name the first option that a process has otherwise than the first one, "" without any."""
    first = told[0]
    for name, value in first.items():
        for process, theirs in enumerate(told):
            if theirs.get(name) != value:
                return (
                    f"The processes have different options: {options.flag(name)}"
                    f" is {value} in rank 0 and {theirs.get(name)} in rank {process}, expected the"
                    " same in all."
                )
    return ""


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "not given"
    return "not given" if value is None else str(value)
