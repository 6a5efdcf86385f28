"""What this rank waits for, and word of the others, in; one sentence for all that ends them out.

Ranks tell each other through the store of torchrun's rendezvous, which outlives each of them:

    et_replay/told          counts those that want to say why all end; the first one says it
    et_replay/beat/R        grows while rank R lives
    et_replay/waits/R       what rank R waits for, once `et_replay/hang` is set

A thread looks on, as the main one may be blocked: by a collective, by a GPU. PyTorch has no call
that ends a blocked one in another thread, so this thread ends the process.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from et_replay.ranks.groups import named_ranks
from et_replay.replay.communication.beats import PREFIX, Beats, Store

TICK = 0.5
"""Seconds between two looks."""
_SILENT = 4 * TICK
"""Seconds without a beat after which a rank is gone, where something else says that one is."""
_VERY_SILENT = 30.0
"""The same where nothing else does: Python code can keep a thread waiting for long."""


@dataclass(frozen=True, slots=True)
class _Entry:
    text: str
    since: float
    done: Callable[[], bool]


class Watch:
    """Looks on from `start` to `stop`; `say` prints a sentence.

    A collective that takes more than `timeout` seconds ends all ranks.
    """

    def __init__(
        self, store: Store, rank: int, size: int, timeout: float, say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._say = say
        self._entries: deque[_Entry] = deque()
        self._passed = ""
        self._beats = Beats(store, rank)
        self._ending = threading.Lock()
        self._woken, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stopping = False
        self._received: set[int] = set()
        self._handlers: dict[signal.Signals, Any] = {}

    def start(self) -> None:
        """Begin to look on, and see to it that SIGTERM, by which torchrun ends ranks, is seen.

        So is Ctrl-C where there are others, as one of them alone is to say so. Python calls a
        handler once the main thread comes back to it, which may be never; the number of the signal
        is written to a socket at once.
        """
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._beats.beat()
        if threading.current_thread() is threading.main_thread():
            ending = [signal.SIGTERM]
            if self._size > 1 and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                ending.append(signal.SIGINT)
            for number in ending:
                self._handlers[number] = signal.signal(number, lambda number, frame: None)
            signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._thread.start()

    def stop(self) -> None:
        """Look on no longer."""
        self._stopping = True
        with suppress(OSError):
            self._waker.send(b"\0")
        self._thread.join(4 * TICK)
        if self._handlers:
            signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def expect_collectives(self) -> None:
        """Note that there will be collectives, the first of which has not begun."""
        self._passed = " before its first collective"

    def enter(self, text: str, done: Callable[[], bool]) -> None:
        """Note that `text` has begun; it is over once `done` says so."""
        entries = self._entries
        while entries and entries[0].done():
            self._passed = f" after {entries.popleft().text}"
        entries.append(_Entry(text, time.monotonic(), done))

    def claim(self) -> None:
        """Let the caller, and not the thread, end this process from here on."""
        self._ending.acquire()

    def tell(self, sentence: str) -> bool:
        """Ask to end all ranks for a reason that is this one's; True if no other asked before."""
        with suppress(RuntimeError):
            first = self._store.add(f"{PREFIX}/told", 1) == 1
            self._store.set(f"{PREFIX}/why", sentence)
            return first
        return True

    def is_ending(self) -> bool:
        """Tell whether another rank, torchrun, or Ctrl-C has asked this one to end."""
        with suppress(RuntimeError):
            return bool(self._received) or self._store.check([f"{PREFIX}/told"])
        return True

    def lost(self, reason: str) -> str | None:
        """Find out why communication broke off; None where another rank has said it.

        Takes as long as it takes to see that a rank lives no longer.
        """
        with suppress(RuntimeError):
            end = time.monotonic() + _SILENT + TICK
            while time.monotonic() < end:
                if self._store.check([f"{PREFIX}/told"]):
                    return None
                self._beats.beat()
                self._beats.look_at(range(self._size))
                time.sleep(TICK / 2)
            gone = self._beats.silent(_SILENT)
            if gone:
                names = named_ranks(gone).capitalize()
                reason = f"{names} ended without a word while {self._state()}"
            return f"{reason}." if self.tell(reason) else None
        return f"{reason}, and the rendezvous of the job is gone."

    def _run(self) -> None:
        while not self._stopping:
            terminated = self._sleep()
            try:
                if not self._stopping:
                    self._look(terminated)
            except RuntimeError:  # the store is gone, and with it the job
                if not self._stopping and terminated:
                    os._exit(1)

    def _sleep(self) -> bool:
        """Wait for the next look; True where a signal to end has come."""
        if not select.select([self._woken], [], [], TICK)[0]:
            return False
        self._received |= self._handlers.keys() & set(self._woken.recv(64))
        return bool(self._received)

    def _look(self, terminated: bool) -> None:
        self._beats.beat()
        if self._size > 1 and self._store.check([f"{PREFIX}/told"]):
            self._end(lambda: None)
        if signal.SIGINT in self._received:
            self._end(lambda: "interrupted" if self.tell("interrupted") else None)
        if terminated:
            self._end(lambda: self.lost(f"SIGTERM came while {self._state()}"))
        if self._size > 1:
            self._beats.look_at([(self._rank + 1) % self._size])
            if self._waits_since() is not None and self._beats.silent(_VERY_SILENT):
                self._end(lambda: self.lost(f"A rank is silent while {self._state()}"))
        since = self._waits_since()
        hang = f"{PREFIX}/hang"
        if since is not None and time.monotonic() - since > self._timeout:
            self._store.set(hang, str(self._rank))
        if self._store.check([hang]):
            self._end(self._hung)

    def _end(self, find: Callable[[], str | None]) -> None:
        """End the process and say what `find` finds, unless the main thread is about to."""
        if not self._ending.acquire(blocking=False):
            return
        interrupted = signal.SIGINT in self._received
        if sentence := find():
            self._say(f"et_replay: {'' if interrupted else 'error: '}{sentence}")
        try:
            for child in multiprocessing.active_children():  # such as do not end by Ctrl-C
                child.terminate()
        finally:
            os._exit(130 if interrupted else 1)

    def _hung(self) -> str | None:
        """Say what every rank waits for, or None where another one does."""
        self._store.set(f"{PREFIX}/waits/{self._rank}", self._state())
        end = time.monotonic() + _SILENT
        keys = [f"{PREFIX}/waits/{rank}" for rank in range(self._size)]
        while time.monotonic() < end and not self._store.check(keys):
            time.sleep(TICK / 5)
        if self._store.add(f"{PREFIX}/told", 1) > 1:
            time.sleep(_SILENT)  # until the one that says it has read what this one waits for
            return None
        texts = [
            self._store.get(key).decode() if self._store.check([key]) else f"rank {rank} is silent"
            for rank, key in enumerate(keys)
        ]
        return f"No collective ended for {self._timeout:g} s: {'; '.join(_alike(texts))}."

    def _state(self) -> str:
        waits = next((entry for entry in list(self._entries) if not entry.done()), None)
        doing = f"waits in {waits.text}" if waits else f"computes{self._passed}"
        return f"rank {self._rank} {doing}"

    def _waits_since(self) -> float | None:
        return next((entry.since for entry in list(self._entries) if not entry.done()), None)


def _alike(texts: list[str]) -> list[str]:
    """Join what `rank 1 waits in x` and `rank 2 waits in x` say alike."""
    by_rest: dict[str, list[int]] = {}
    for text in texts:
        _, rank, rest = text.split(" ", 2)
        by_rest.setdefault(rest, []).append(int(rank))
    found = []
    for rest, ranks in by_rest.items():
        several = named_ranks(ranks)
        for one, many in (("waits", "wait"), ("computes", "compute"), ("is", "are")):
            if len(ranks) > 1 and rest.startswith(one):
                rest = many + rest.removeprefix(one)
        found.append(f"{several} {rest}")
    return found
