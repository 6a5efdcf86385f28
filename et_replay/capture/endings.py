"""The ways in which a script can end in, a recorder finished in time out."""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from et_replay.capture.termination import Termination
from et_replay.errors import headline
from et_replay.script.telling import tell

if TYPE_CHECKING:
    from et_replay.capture.recorder import Recorder


class Endings:
    """Finishes a recorder when the script ends by itself, by an exception, or by SIGTERM."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._finished = False
        self._end = "exit"
        self._hook = sys.excepthook
        self._termination = Termination(self._finish)
        recorder.window_ended = self._termination.remove

    def install(self) -> None:
        """Be called at each of them; also where the process forks."""
        sys.excepthook = self._uncaught
        atexit.register(self._exit)
        os.register_at_fork(after_in_child=self._forked)
        self._termination.install()

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        self._note(error)
        self._hook(kind, error, traceback)

    def _note(self, error: BaseException) -> None:
        self._end = "exception"
        try:
            self._recorder.failed(error)
        except Exception as failure:
            tell(f"warning: {headline(failure)}")

    def _exit(self) -> None:
        error = getattr(sys, "last_value", None)  # set even if the script has its own excepthook
        if isinstance(error, BaseException):
            self._note(error)
        self._finish(self._end)

    def _finish(self, end: str) -> None:
        if self._finished:
            return
        self._finished = True
        try:
            self._recorder.finish(end)
        except Exception as error:
            tell(f"warning: the capture is not complete: {headline(error)}")

    def _forked(self) -> None:
        self._termination.forked()
        self._finished = False
