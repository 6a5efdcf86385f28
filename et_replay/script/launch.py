"""The words of a command in, that command run with this package in its Python processes out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from et_replay.errors import UsageError
from et_replay.script.on_torch import VARIABLE

_STARTUP = Path(__file__).resolve().parent / "startup"
_FORWARDED = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True)
class Ended:
    """How a command's first process ended: `status` is its exit code, or -n by signal n."""

    pid: int
    status: int

    @property
    def exit_code(self) -> int:
        """The exit code as a shell tells it, 128 + n where signal n ended the process."""
        return self.status if self.status >= 0 else 128 - self.status


def run_script(words: Sequence[str], role: str, settings: Mapping[str, object]) -> Ended:
    """Run `words`, and `et_replay.<role>.begin` in each of its processes that imports torch.

    That gets `settings` with the keys `role` and `words` added, which must be JSON; it runs right
    after torch has been imported. Words that begin with a file in .py, or with -m, are for this
    Python; another program is looked for beside this Python first, as in an activated environment.
    Raises UsageError if there is no program to start.
    """
    command = command_of(words)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_STARTUP), os.environ.get("PYTHONPATH")))),
        VARIABLE: json.dumps({**settings, "role": role, "words": list(words)}),
    }
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}.") from error
    with _signals_for(process):
        return Ended(process.pid, process.wait())


def command_of(words: Sequence[str]) -> list[str]:
    """Find the program that `words` start; raises UsageError if there is none."""
    if not words:
        raise UsageError("Expected a command to run after --, such as -- python train.py.")
    first = words[0]
    if first == "-m" or first.endswith(".py"):
        return [sys.executable, *words]
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join((beside, os.environ.get("PATH", os.defpath)))
    program = shutil.which(first, path=path)
    if program is None:
        raise UsageError(f"Expected a command to run after --, but there is no program {first}.")
    return [program, *words[1:]]


@contextmanager
def _signals_for(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Hand the signals that ask this process to end to `process`, and wait for it to do so."""

    def forward(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT or not _terminal_tells_group():
            process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminal_tells_group() -> bool:
    """Tell whether Ctrl-C reaches the script, in this process's group, without our help."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
