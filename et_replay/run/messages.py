"""What the processes of a script tell the command that started them, as lines of JSON in a pipe."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Message = dict[str, Any]

_LONGEST = 4096  # PIPE_BUF: so much is written at once, whoever else writes


class Mailbox:
    """The end that reads. A context manager: the pipe has a name only within it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="et_replay-")
        self.path = Path(self._folder.name, "messages")
        os.mkfifo(self.path, 0o600)
        # Opened for both: it blocks until something comes, and ends with `close` alone.
        self._descriptor = os.open(self.path, os.O_RDWR)

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        self._folder.cleanup()

    def messages(self) -> Iterator[Message]:
        """Yield messages as they come, until `close` has been called."""
        with os.fdopen(os.dup(self._descriptor), encoding="utf-8") as lines:
            for line in lines:
                message = json.loads(line)
                if message is None:
                    return
                yield message

    def close(self) -> None:
        """Let `messages` end after what has been sent until now."""
        os.write(self._descriptor, b"null\n")


def send(path: Path, message: Message) -> None:
    """Tell the command; if it has gone, or does not listen, nobody hears."""
    line = json.dumps(message).encode() + b"\n"
    if len(line) > _LONGEST:
        raise ValueError(f"A message of {len(line)} bytes is longer than {_LONGEST}.")
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.set_blocking(descriptor, True)  # from here on: it waits for room, not for a reader
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
