"""The allocator's configuration, from a snapshot's own fields or from a settings string."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_MIB = 1 << 20
_INTERVALS = 16  # powers of two from 1 MiB to 32 GiB, each with divisions of its own
_LEAST_SHARE = 1e-3
_OPTION = re.compile(r"(?:\[[^\]]*\]|[^,])+")


@dataclass(frozen=True)
class AllocatorSettings:
    """What decides the size of a block; `text` is the whole in PYTORCH_ALLOC_CONF's syntax.

    `max_split` is None where blocks of every size are split, and `fraction` of the device's memory
    is the allocator's.
    """

    text: str = ""
    max_split: int | None = None
    expandable: bool = False
    garbage_collection: float = 0.0
    fraction: float = 1.0
    divisions: tuple[int, ...] = (0,) * _INTERVALS

    def rounded(self, size: int) -> int:
        """Return what a request of `size` bytes, at least one, is rounded to."""
        interval = min(max(size.bit_length() - 21, 0), _INTERVALS - 1)
        divisions = self.divisions[interval]
        if divisions > 1 and size > 512 * divisions:
            step = (1 << (size.bit_length() - 1)) // divisions
            return -(-size // step) * step
        return max(-(-size // 512), 1) * 512


def options_in(text: str) -> list[str]:
    """List the options of a settings string, which are NAME:VALUE if they are well-formed."""
    return _OPTION.findall(re.sub(r"\s", "", text))


def settings_from_text(text: str) -> AllocatorSettings:
    """Read a settings string; what is unknown or malformed in it is left to the allocator."""
    options = dict(option.split(":", 1) for option in options_in(text) if ":" in option)
    max_split = _integer(options.get("max_split_size_mb", ""))
    return AllocatorSettings(
        text=text,
        max_split=None if max_split is None else max_split * _MIB,
        expandable=options.get("expandable_segments") == "True",
        garbage_collection=_number(options.get("garbage_collection_threshold", "")),
        fraction=_share(options.get("per_process_memory_fraction", "")),
        divisions=_divisions(options.get("roundup_power2_divisions", "")),
    )


def settings_from_fields(fields: Mapping[str, Any]) -> AllocatorSettings:
    """Read the `allocator_settings` of a snapshot; its string may be empty and its fields not."""
    text = fields.get("PYTORCH_CUDA_ALLOC_CONF")
    divisions = _recorded_divisions(fields.get("roundup_power2_divisions"))
    if not isinstance(text, str) or not text.strip():
        text = ",".join((*_options(fields), *_roundup_option(divisions)))
    return replace(settings_from_text(text), divisions=divisions)


def settings_as_fields(text: str) -> dict[str, Any]:
    """Return the `allocator_settings` that a snapshot has under a settings string."""
    settings = settings_from_text(text)
    return {
        "PYTORCH_CUDA_ALLOC_CONF": text,
        "max_split_size": -1 if settings.max_split is None else settings.max_split,
        "garbage_collection_threshold": settings.garbage_collection,
        "expandable_segments": settings.expandable,
        "roundup_power2_divisions": {
            str(1 << interval): count for interval, count in enumerate(settings.divisions)
        },
    }


def _options(fields: Mapping[str, Any]) -> Iterator[str]:
    max_split = fields.get("max_split_size")
    if type(max_split) is int and max_split > 0:
        yield f"max_split_size_mb:{max_split // _MIB}"
    threshold = fields.get("garbage_collection_threshold")
    if isinstance(threshold, float) and 0 < threshold < 1:
        yield f"garbage_collection_threshold:{threshold:g}"
    if fields.get("expandable_segments") is True:
        yield "expandable_segments:True"


def _recorded_divisions(recorded: Any) -> tuple[int, ...]:
    if not isinstance(recorded, dict):
        return (0,) * _INTERVALS
    counts = (recorded.get(str(1 << interval), 0) for interval in range(_INTERVALS))
    return tuple(count if type(count) is int and count > 0 else 0 for count in counts)


def _roundup_option(divisions: tuple[int, ...]) -> Iterator[str]:
    if len(set(divisions)) > 1:
        pairs = (f"{1 << interval}:{max(count, 1)}" for interval, count in enumerate(divisions))
        yield f"roundup_power2_divisions:[{','.join(pairs)}]"
    elif divisions[0]:
        yield f"roundup_power2_divisions:{divisions[0]}"


def _divisions(option: str) -> tuple[int, ...]:
    """Read one number for all intervals, or a list: its first size also stands for smaller ones."""
    if not option.startswith("["):
        return (_integer(option) or 0,) * _INTERVALS
    counts, named = [0] * _INTERVALS, -1
    for pair in option.strip("[]").split(","):
        size, _, count = pair.partition(":")
        begin, end = named + 1, _INTERVALS
        if size != ">":
            interval = min((_integer(size) or 1).bit_length(), _INTERVALS) - 1
            begin, end = 0 if named < 0 else interval, interval + 1
            named = interval
        counts[begin:end] = [_integer(count) or 0] * (end - begin)
    return tuple(counts)


def _integer(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _share(text: str) -> float:
    """Read a share; what is none, or so small that no device is large enough, counts as all."""
    share = _number(text)
    return share if _LEAST_SHARE <= share <= 1 else 1.0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
