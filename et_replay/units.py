"""Quantities to text and back; nothing else formats or parses sizes, durations and shares."""

from __future__ import annotations

import re

from et_replay.errors import UsageError

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("B", "kB", "MB", "GB", "TB")
_DURATIONS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_LARGEST = 2**63 - 1
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def _three_digits(value: float) -> str:
    """Write `value` with three significant digits, and no fewer than its whole part has."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def format_bytes(size: int) -> str:
    """Write a size in IEC units: `512 B`, `2.87 GiB`."""
    value, power = float(abs(size)), 0
    while value >= 1023.5 and power < len(_BINARY) - 1:
        value /= 1024
        power += 1
    sign = "-" if size < 0 else ""
    return (
        f"{sign}{abs(size)} B" if power == 0 else f"{sign}{_three_digits(value)} {_BINARY[power]}"
    )


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write how many there are of something: `1 request`, `3 requests`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def format_duration(nanoseconds: float) -> str:
    """Write a duration: `22.4 ms`, `810 ns`."""
    for factor, unit in _DURATIONS:
        if nanoseconds >= factor * 0.9995:
            return f"{_three_digits(nanoseconds / factor)} {unit}"
    return f"{nanoseconds:.0f} ns"


def format_rate(bytes_per_second: float) -> str:
    """Write a bandwidth in powers of 1000, as NCCL's tests do: `186 GB/s`."""
    value, power = bytes_per_second, 0
    while value >= 999.5 and power < len(_DECIMAL) - 1:
        value /= 1000
        power += 1
    return f"{_three_digits(value)} {_DECIMAL[power]}/s"


def format_share(share: float) -> str:
    """Write a share of one as a percentage: 0.123 is `12.3 %`."""
    return f"{100 * share:.1f} %"


def parse_bytes(text: str) -> int:
    """Read `24GiB`, `24GB`, `1.5g` (binary without the B, as in `24G`) or plain bytes.

    Raises UsageError when `text` is none of these, or more than 64 bits hold.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"Expected a size such as 24GiB, 24GB or 1048576, got {text!r}.")
    number, prefix, binary = match.groups()
    decimal = prefix and not binary and text.strip()[-1] in "bB"
    factor: int = (1000 if decimal else 1024) ** _POWERS[prefix.lower()]
    exact = number.isdecimal() and len(number) < 20
    value = (int(number) if exact else float(number)) * factor
    if value > _LARGEST:
        raise UsageError(f"Expected at most {_LARGEST} bytes, got {text[:40]!r}.")
    return round(value)
