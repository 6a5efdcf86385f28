"""Calls on process groups in, their Works kept until something waits for them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from et_replay.errors import CommunicationError, first_line
from et_replay.replay.communication.calls import Launch, Tensors
from et_replay.replay.communication.watch import Watch
from et_replay.replay.observers import observed


class CallClock(Protocol):
    """Is told of every call by its number."""

    def begin(self, index: int) -> None: ...
    def launched(self, index: int, work: Any) -> Any: ...
    def waited(self, index: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Transfer:
    """One call, ready to be made: `index` is its number in the window, `text` names it.

    `launch_timed` makes it where a clock is told of it. `asynchronous` ones end when something
    waits for them; `told` whether their Works tell that they have ended, without being waited for.
    Calls from one that `opens` a batch to one that `closes` it are made as one.
    """

    index: int
    text: str
    launch: Launch
    launch_timed: Launch
    group: Any
    device: torch.device
    asynchronous: bool
    told: bool = True
    opens: bool = False
    closes: bool = False
    members: tuple[int, ...] = ()


class _Ended:
    """Tells when a call that was waited for has ended on the device as well."""

    def __init__(self) -> None:
        self.work: Any = None
        self.event: Any = None
        self.over = False

    def __call__(self) -> bool:
        if self.over:
            return self.event is None or bool(self.event.query())
        return self.work is not None and bool(self.work.is_completed())


@dataclass(slots=True)
class _Under:
    """A call under way; `kept` are tensors that it reads or writes."""

    transfer: Transfer
    work: Any
    kept: tuple[Tensors, Tensors]
    ended: _Ended


class Exchange:
    """The calls that are under way in this process."""

    def __init__(self, watch: Watch) -> None:
        self.clock: CallClock | None = None
        self._watch = watch
        self._under: dict[int, _Under] = {}
        self._batch: list[tuple[Tensors, Tensors]] = []

    def make(self, transfer: Transfer, given: Tensors, taken: Tensors) -> None:
        """Make a call, and wait for it unless it is asynchronous.

        Raises CommunicationError where it fails.
        """
        if self.clock is not None:
            self.clock.begin(transfer.index)
        ended = _Ended()
        self._watch.enter(transfer.text, ended)
        ended.work = work = self._tried(transfer, lambda: self._launch(transfer, given, taken))
        if transfer.members and not transfer.closes:
            ended.over = True
            return
        kept = given, taken
        if transfer.closes:
            kept = ([*_all(self._batch, 0)], [*_all(self._batch, 1)])
            self._batch = []
        if self.clock is not None:
            for index in transfer.members or (transfer.index,):
                work = self.clock.launched(index, work)
            ended.work = work
        if transfer.asynchronous:
            ended.over = not transfer.told
            self._under[transfer.index] = _Under(transfer, work, kept, ended)
        else:
            self._wait(transfer, work, ended)

    def wait(self, index: int) -> None:
        """Wait for call `index`, if it is under way."""
        under = self._under.pop(index, None)
        if under is not None:
            ended = under.ended
            if not under.transfer.told:  # it counts as waited for from now on
                ended = _Ended()
                self._watch.enter(under.transfer.text, ended)
            self._wait(under.transfer, under.work, ended)

    def _launch(self, transfer: Transfer, given: Tensors, taken: Tensors) -> Any:
        if transfer.opens:
            transfer.group._start_coalescing(transfer.device)
        launch = transfer.launch if self.clock is None else transfer.launch_timed
        work = observed(launch, given, taken)
        if transfer.members:
            self._batch.append((given, taken))
        if transfer.closes:
            work = transfer.group._end_coalescing(transfer.device)
        return work

    def _wait(self, transfer: Transfer, work: Any, ended: _Ended) -> None:
        if work is not None:
            self._tried(transfer, work.wait)
        if transfer.device.type == "cuda":  # where waiting is for the stream alone
            ended.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ended.event.record(torch.cuda.current_stream(transfer.device))
        ended.work, ended.over = None, True
        if self.clock is not None:
            for index in transfer.members or (transfer.index,):
                self.clock.waited(index)

    def _tried(self, transfer: Transfer, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError) as error:
            raise CommunicationError(f"{transfer.text} failed: {first_line(error)}") from error


def _all(batch: Sequence[tuple[Tensors, Tensors]], side: int) -> Tensors:
    return [tensor for pair in batch for tensor in pair[side]]
