"""SIGTERM in, a call in time before it ends the process out, wherever its main thread is."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

_PATIENCE = 5.0  # seconds; a main thread that waits in a collective may never run Python again


class Termination:
    """Ends the process by SIGTERM as if nobody handled it, but after `finish`."""

    def __init__(self, finish: Callable[[str], None]) -> None:
        self._finish = finish
        self._pipe: tuple[int, int] | None = None
        self._handled = False

    def install(self) -> None:
        """Handle SIGTERM, unless the script does, or is not to be ended by it."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        reader, writer = self._pipe = os.pipe()
        os.set_blocking(writer, False)
        # Python runs handlers in the main thread alone, but writes to this at once.
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if before >= 0:  # the script's own
            signal.set_wakeup_fd(before)
            return
        thread = threading.Thread(target=self._wait, args=(reader,), name="et_replay", daemon=True)
        thread.start()

    def remove(self) -> None:
        """Leave SIGTERM as it was, if the script has not changed it."""
        main = threading.current_thread() is threading.main_thread()
        if not main or self._pipe is None:
            return
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _, writer = self._pipe
        self._pipe = None
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, writer):
            signal.set_wakeup_fd(before)
        os.close(writer)  # which ends the thread, and that closes its end

    def forked(self) -> None:
        """Let a child of this process end by SIGTERM at once, and not tell its parent of it."""
        pipe = self._pipe
        self.remove()
        if pipe is not None:
            os.close(pipe[0])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._end(number)

    def _wait(self, reader: int) -> None:
        while signals := os.read(reader, 64):
            if signal.SIGTERM in signals and self._pipe is not None:
                time.sleep(_PATIENCE)
                self._end(signal.SIGTERM)
        os.close(reader)

    def _end(self, number: int) -> None:
        if self._handled or self._pipe is None:
            return
        self._handled = True
        with suppress(Exception):
            self._finish(f"signal {int(number)}")
        ctypes.CDLL(None).signal(int(number), 0)  # signal.signal is for the main thread alone
        os.kill(os.getpid(), number)
