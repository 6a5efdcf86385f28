"""Command-line words in, checked values out: the types of arguments that commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from et_replay.errors import UsageError
from et_replay.units import parse_bytes

_LONGEST = 10**9
"""Seconds: 30 years, which all clocks can count."""
_DEVICE = re.compile(r"auto|cpu|meta|cuda(:\d+)?")


def path(text: str) -> str:
    """Read a path, which says something."""
    if not text:
        raise argparse.ArgumentTypeError("Expected a path, got ''.")
    return text


def name(text: str) -> str:
    """Read a name, which says something."""
    if not text:
        raise argparse.ArgumentTypeError("Expected a name, got ''.")
    return text


def ending(*endings: str) -> Callable[[str], str]:
    """Return a reader of paths that end in one of these ways."""

    def read(text: str) -> str:
        if not text.endswith(endings):
            expected = " or ".join(endings)
            raise argparse.ArgumentTypeError(
                f"Expected a name that ends in {expected}, got {text!r}."
            )
        return text

    return read


def size(text: str) -> int:
    """Read a positive size such as 24GiB."""
    try:
        value = parse_bytes(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if value == 0:
        raise argparse.ArgumentTypeError(f"Expected a size above 0, got {text!r}.")
    return value


def size_or_none(text: str) -> int:
    """Read a size such as 24GiB, or 0."""
    return 0 if text.strip() == "0" else size(text)


def share(text: str) -> float:
    """Read a share above 0, 1 at most."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Expected a number, got {text!r}.") from error
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"Expected a number above 0 and up to 1, got {text!r}.")
    return value


def seconds(text: str) -> float:
    """Read a time above 0 in seconds."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Expected a number of seconds, got {text!r}.") from error
    if not 0 < value <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"Expected a number of seconds above 0 and up to {_LONGEST}, got {text!r}."
        )
    return value


def integer(minimum: int, maximum: int = 2**63 - 1) -> Callable[[str], int]:
    """Return a reader of whole numbers from `minimum` to `maximum`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"Expected a whole number, got {text!r}.") from error
        if not minimum <= value <= maximum:
            limit = f"at least {minimum}" if value < minimum else f"at most {maximum}"
            raise argparse.ArgumentTypeError(f"Expected {limit}, got {text!r}.")
        return value

    return read


def device(text: str) -> str:
    """Read the name of a device to replay on."""
    if _DEVICE.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"Expected auto, cuda, cuda:N, cpu or meta, got {text!r}.")
    return text
