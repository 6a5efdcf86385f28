"""What a script does with torch in, the ends of its iterations out.

Sources, the best first: the mark that the user names, calls of `mark_iteration`, the steps of the
script's own profiler (or marks named as it names them), optimizer steps, and, as a compiled step is
not seen, the clearing of gradients.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any

from et_replay.errors import headline
from et_replay.script.telling import tell

if TYPE_CHECKING:
    import torch

_GRADIENTS, _OPTIMIZER, _PROFILER, _CALL, _MARK = range(5)
_OPTIMIZER_STEP = "Optimizer.step#"  # torch.optim opens marks of these names
_ZERO_GRAD = "Optimizer.zero_grad#"
_PROFILER_STEP = "ProfilerStep#"
_MOST_SEEN = 8
_NUMBER = re.compile(r"\d+$")
_watch: _Watch | None = None


def watch_iterations(
    ended: Callable[[str], None],
    mark: str | None = None,
    outside: Callable[[], None] | None = None,
) -> Callable[[], None]:
    """Call `ended` in the script's thread whenever an iteration has ended, with what ended it.

    With `mark`, a pattern as of a shell, one ends where a `torch.profiler.record_function` of such
    a name does, and nowhere else. Once a better source has been seen, the worse ones are ignored.
    Of several optimizers the one that stepped first counts. Ends in other threads than that of
    the first are ignored.

    `outside` is called after `ended`, as soon as all marks are closed that were opened since it was
    last called: there a mark can be opened or closed that encloses an iteration. What either
    raises is told on stderr, and ends the watch. Returns what ends it; nothing is left behind.
    """
    global _watch
    if _watch is not None:
        raise RuntimeError("The iterations of this process are watched already.")
    watch = _Watch(ended, mark, outside)
    watch.install()
    _watch = watch
    return watch.remove


def is_watched() -> bool:
    """Tell whether the iterations of this process are watched."""
    return _watch is not None


def annotations_seen() -> list[str]:
    """Name the first few annotations that a watch for another mark has seen, without torch's."""
    return [] if _watch is None else list(_watch.seen)


def without_number(name: str) -> str:
    """Write a star for the number that a name ends in, as that of a mark is another each time."""
    return _NUMBER.sub("*", name)


def mark_iteration() -> None:
    """Say that an iteration ends here, in a script without optimizer or profiler steps.

    Does nothing where nobody watches.
    """
    if _watch is not None:
        _watch.end(_CALL, "mark_iteration()")


class _OpenMarks(threading.local):
    """The marks that a thread has opened, as far as they matter."""

    depth = 0
    base = sys.maxsize  # so many were open when `outside` was called last, and still are
    stepping = 0


class _Watch:
    """Sees marks open and close, and tells ends of iterations."""

    def __init__(
        self,
        ended: Callable[[str], None],
        mark: str | None,
        outside: Callable[[], None] | None,
    ) -> None:
        self.steps = 0
        self.seen: dict[str, None] = {}
        self._ended = ended
        self._outside = outside
        self._mark = mark
        self._best = _GRADIENTS if mark is None else _MARK
        self._open = _OpenMarks()
        self._pending = False
        self._thread: int | None = None
        self._stepping: Callable[[], object] = lambda: None  # the optimizer whose steps count
        self._clearing: Callable[[], object] = lambda: None
        self._profiler_stops = False
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Put this watch between torch and those who call it."""
        import torch

        mark = torch.profiler.record_function
        profiler = torch.profiler.profile
        self._replace(mark, "__enter__", self._entering)
        self._replace(mark, "__exit__", self._leaving)
        self._replace(profiler, "step", self._profiler_step)
        self._replace(profiler, "stop", self._profiler_stop)
        self._replace(torch.amp.GradScaler, "step", self._scaler_step)

    def remove(self) -> None:
        """Leave torch as it was."""
        global _watch
        while self._restore:
            self._restore.pop()()
        if _watch is self:
            _watch = None

    def end(self, source: int, by: str) -> None:
        """Take an end of an iteration from one of the sources."""
        thread = threading.get_ident()
        if source < self._best or self._thread not in (None, thread):
            return
        self._best = source
        self._thread = thread
        self._pending = self._outside is not None
        self._guard(lambda: self._ended(by))
        self._look_outside()

    def _replace(
        self, owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        original = owner.__dict__[name]
        replaced = wraps(original)(make(original))
        setattr(owner, name, replaced)

        def restore() -> None:
            if owner.__dict__[name] is replaced:
                setattr(owner, name, original)

        self._restore.append(restore)

    def _entering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(mark: torch.profiler.record_function) -> Any:
            self._open.depth += 1
            if self._mark is not None and len(self.seen) < _MOST_SEEN:
                self._see(mark.name)
            if mark.name.startswith(_OPTIMIZER_STEP):
                self._open.stepping += 1
            elif mark.name.startswith(_PROFILER_STEP):
                self._best = max(self._best, _PROFILER)
            return original(mark)

        return enter

    def _see(self, name: str) -> None:
        if not name.startswith((_OPTIMIZER_STEP, _ZERO_GRAD)):
            self.seen[without_number(name)] = None

    def _leaving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(mark: torch.profiler.record_function, kind: Any, *details: Any) -> Any:
            result = original(mark, kind, *details)
            self._open.depth = max(0, self._open.depth - 1)  # 0: it was opened before the watch
            self._left(mark.name, kind is not None, sys._getframe(1))
            self._open.base = min(self._open.base, self._open.depth)
            self._look_outside()
            return result

        return leave

    def _left(self, name: str, failed: bool, caller: FrameType) -> None:
        """Tell what ends with a mark; `self` of the caller is the optimizer if torch.optim is."""
        if name.startswith(_OPTIMIZER_STEP):
            self._open.stepping = max(0, self._open.stepping - 1)
            if not failed and not self._open.stepping:  # else it is a part of another's step
                self._stepped(caller.f_locals.get("self"))
        elif failed:
            return
        elif name.startswith(_ZERO_GRAD):
            self._cleared(caller.f_locals.get("self"))
        elif self._mark is not None:
            if fnmatchcase(name, self._mark):
                self.end(_MARK, f"mark {name}")
        elif name.startswith(_PROFILER_STEP) and not self._profiler_stops:
            self.end(_PROFILER, f"mark {name}")

    def _stepped(self, optimizer: object) -> None:
        self.steps += 1
        if self._stepping() is None and optimizer is not None:
            self._stepping = weakref.ref(optimizer)
        if self._stepping() in (None, optimizer):
            self.end(_OPTIMIZER, "optimizer step")

    def _cleared(self, optimizer: object) -> None:
        """Take the second clearing and all later ones, if no step was seen between them."""
        if self._clearing() is None and optimizer is not None:
            self._clearing = weakref.ref(optimizer)
        elif self._clearing() is optimizer:
            self.end(_GRADIENTS, "zero_grad")

    def _scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: object, optimizer: object, *words: Any, **named: Any) -> Any:
            steps = self.steps
            result = original(scaler, optimizer, *words, **named)
            if self.steps == steps:  # skipped, as a gradient is not finite
                self._stepped(optimizer)
            return result

        return step

    def _profiler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(profiler: torch.profiler.profile) -> Any:
            result = original(profiler)
            if not profiler.record_steps:  # or else a mark tells
                self.end(_PROFILER, "profiler step")
            return result

        return step

    def _profiler_stop(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def stop(profiler: torch.profiler.profile) -> Any:
            self._profiler_stops = True  # its last mark encloses nothing
            try:
                return original(profiler)
            finally:
                self._profiler_stops = False
                if self._best == _PROFILER:
                    self._best = _GRADIENTS

        return stop

    def _look_outside(self) -> None:
        marks = self._open
        if not self._pending or self._outside is None or marks.depth > marks.base:
            return
        if threading.get_ident() == self._thread:
            self._pending = False
            marks.base = marks.depth
            self._guard(self._outside)

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self.remove()
            self._pending = False
            tell(f"warning: iterations are no longer watched: {headline(error)}")
