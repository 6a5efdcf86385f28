"""Errors a user can act on; each knows the exit code that the command line returns for it."""

from __future__ import annotations


class EtReplayError(Exception):
    """Root of everything this package raises on purpose; its text is one sentence."""

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes with all attributes, whatever the constructor asks for."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, which in PyTorch is the message, without its stop.

    Without what of it could not be decoded. Empty where it has no text.
    """
    text = str(error).encode(errors="ignore").decode().replace("\N{REPLACEMENT CHARACTER}", "")
    return next(iter(text.strip().splitlines()), "").rstrip(".")


def one_line(error: BaseException) -> str:
    """Return all of an error's text, on one line and without its stop."""
    return " ".join(str(error).split()).rstrip(".")


def headline(error: BaseException, *, qualified: bool = True, whole: bool = False) -> str:
    """Return an error's type and the first line of its text, or the `whole` of it, if any.

    A `qualified` type is named as in a traceback, else without its module.
    """
    kind = type(error)
    name = kind.__qualname__ if qualified else kind.__name__
    if qualified and kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    text = one_line(error) if whole else first_line(error)
    return f"{name}: {text}" if text else name


def _rebuilt(
    kind: type[EtReplayError], args: tuple[object, ...], attributes: dict[str, object]
) -> EtReplayError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class UsageError(EtReplayError):
    """The command line, or the arguments of a call, ask for something that cannot be."""

    exit_code = 2


class TraceError(EtReplayError):
    """The input file is not what was needed, or too broken to read."""


class PlanError(EtReplayError):
    """A plan file is invalid, or belongs to another trace."""


class ReplayError(EtReplayError):
    """An operator failed, or cannot run, where the user asked not to go on."""


class CommunicationError(ReplayError):
    """A call of torch.distributed failed, most often because another rank has ended."""


class UndefinedBehaviorError(ReplayError):
    """PyTorch itself refuses, crashes or corrupts its state here; `event` is the row, if known."""

    def __init__(self, message: str, *, event: int | None = None) -> None:
        super().__init__(message)
        self.event = event


class OutOfMemoryError(ReplayError):
    """A request did not fit the device; all figures are bytes.

    `segment` is what the device would have had to give for it, and `limit` what the allocator may
    hold of its `capacity`.

    `node_id`, `operator` and `event` say where, as far as the raiser knows: an allocator knows none
    of them, the simulator adds `event`, a replay adds the node.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        requested: int,
        capacity: int,
        allocated: int,
        reserved: int,
        largest_free: int = 0,
        segment: int = 0,
        limit: int | None = None,
        event: int | None = None,
        node_id: int | None = None,
        operator: str | None = None,
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.capacity = capacity
        self.allocated = allocated
        self.reserved = reserved
        self.largest_free = largest_free
        self.segment = segment or requested
        self.limit = capacity if limit is None else limit
        self.event = event
        self.node_id = node_id
        self.operator = operator
