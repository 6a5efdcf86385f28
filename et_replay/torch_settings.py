"""The settings of PyTorch that decide which kernels run: read in one process, in force in another.

Told by the names of PyTorch: the precision of float32
(https://docs.pytorch.org/docs/stable/notes/cuda.html), determinism
(https://docs.pytorch.org/docs/stable/notes/randomness.html), and those of cuDNN.
"""

from __future__ import annotations

import operator
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from et_replay.errors import ReplayError, TraceError, first_line

Value = bool | str
TorchSettings = Mapping[str, Value]

_SHOWN = 40
"""Characters of a value that an error shows."""
_NAMED = 5
"""Settings that a note names."""
_PRECISIONS = ("none", "ieee", "tf32", "bf16")
_SWITCH = (False, True)
_ATTRIBUTES: Mapping[str, tuple[Value, ...]] = {
    "utils.deterministic.fill_uninitialized_memory": _SWITCH,
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": _SWITCH,
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction": _SWITCH,
    "backends.cuda.matmul.allow_fp16_accumulation": _SWITCH,
    "backends.cudnn.enabled": _SWITCH,
    "backends.cudnn.benchmark": _SWITCH,
    "backends.cudnn.deterministic": _SWITCH,
    "backends.cudnn.allow_tf32": _SWITCH,
    # From torch 2.9 on, where these decide, whatever those before them in this list tell; the first
    # ones are what the others are taken from where these tell none. That of all of mkldnn is left
    # out: torch 2.13 sets that of all backends in its place.
    "backends.fp32_precision": _PRECISIONS,
    "backends.cudnn.fp32_precision": _PRECISIONS,
    "backends.cuda.matmul.fp32_precision": _PRECISIONS,
    "backends.cudnn.conv.fp32_precision": _PRECISIONS,
    "backends.cudnn.rnn.fp32_precision": _PRECISIONS,
    "backends.mkldnn.matmul.fp32_precision": _PRECISIONS,
    "backends.mkldnn.conv.fp32_precision": _PRECISIONS,
    "backends.mkldnn.rnn.fp32_precision": _PRECISIONS,
}
_DETERMINISM = ("default", "warn", "error")
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""A variable of the environment, without which cuBLAS is not deterministic."""
_WORKSPACES = re.compile(r"(:[0-9]{1,9}:[0-9]{1,9}){1,8}")


@dataclass(frozen=True)
class _Setting:
    """How to get and set it, and what it may be."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    values: tuple[Value, ...]

    def admits(self, value: object) -> bool:
        return any(type(value) is type(each) and value == each for each in self.values)


@dataclass(frozen=True)
class InForce:
    """Settings that were not so before, and the names of those that this PyTorch does not have."""

    changed: TorchSettings
    unknown: tuple[str, ...]

    def notes(self) -> Iterator[str]:
        """Say what is not as in the job."""
        if self.unknown:
            names = ", ".join(map(_shown, self.unknown[:_NAMED]))
            more = f" and {len(self.unknown) - _NAMED} more" if len(self.unknown) > _NAMED else ""
            yield (
                f"torch {torch.__version__} does not have these settings of the job, which are not"
                f" in force: {names}{more}."
            )


def torch_settings() -> dict[str, Value]:
    """Return the settings of this process, of those that this PyTorch has and tells."""
    told = ((name, _told(setting)) for name, setting in _SETTINGS.items())
    settings = {name: value for name, value in told if value is not None}
    if workspace := os.environ.get(_WORKSPACE):
        settings[_WORKSPACE] = workspace
    return settings


def checked(told: object, source: str) -> dict[str, Value]:
    """Return what `source` tells of them; raises TraceError where that cannot be."""
    if not isinstance(told, dict):
        raise TraceError(
            f"{source} tells {_shown(told)} as PyTorch's settings, expected a table of them; remove"
            " that line to replay with those of this process."
        )
    for name, value in told.items():
        setting = _SETTINGS.get(name)
        if name == _WORKSPACE:
            fits = isinstance(value, str) and bool(_WORKSPACES.fullmatch(value))
            expected = "one like :4096:8"
        else:
            fits = setting is None or setting.admits(value)
            expected = "one of " + ", ".join(map(str, setting.values if setting else ()))
        if not fits:
            raise TraceError(
                f"{source} tells {_shown(value)} as PyTorch's setting {name}, expected {expected};"
                " remove it there to replay with that of this process."
            )
    return told


@contextmanager
def in_force(settings: TorchSettings) -> Iterator[InForce]:
    """Let PyTorch work with these settings.

    The workspace of cuBLAS is set for good, and in force if cuBLAS has not been used before. Raises
    ReplayError where PyTorch refuses one.
    """
    if not settings:
        yield InForce({}, ())
        return
    own = torch_settings()
    known = {name: value for name, value in settings.items() if name in _SETTINGS and _has(name)}
    if _WORKSPACE in settings:
        os.environ[_WORKSPACE] = str(settings[_WORKSPACE])
        known[_WORKSPACE] = settings[_WORKSPACE]
    try:
        _set(known)
        yield InForce(
            {name: value for name, value in known.items() if own.get(name) != value},
            tuple(name for name in settings if name not in known),
        )
    finally:
        _set(own)


def as_code(settings: TorchSettings) -> list[str]:
    """Write the lines of Python that set these, wherever they are run.

    All are written, in order: some of those that come first set others, too.
    """
    lines = []
    if _WORKSPACE in settings:
        lines.append(f"os.environ[{_WORKSPACE!r}] = {settings[_WORKSPACE]!r}")
    for name in _SETTINGS:
        if name not in settings:
            continue
        value, place = settings[name], f"torch.{name}"
        if name not in _ATTRIBUTES:
            lines.append(f"torch.set_{name}({value!r})")
        elif _ATTRIBUTES[name] is _PRECISIONS:
            lines += [f"if {place} != {value!r}:", f"    {place} = {value!r}"]
        else:
            lines.append(f"{place} = {value!r}")
    return lines


def _set(settings: TorchSettings) -> None:
    """Set what is another, in order: some of those that come first set others, too."""
    for name, setting in _SETTINGS.items():
        value = settings.get(name)
        if value is None or _told(setting) == value:
            continue
        try:
            with _unmoved():
                setting.write(value)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ReplayError(
                f"torch {torch.__version__} does not take the job's setting {name} = {value}:"
                f" {first_line(error)}."
            ) from error


def _told(setting: _Setting) -> Value | None:
    """Read a setting; None where this PyTorch has none, or does not tell it now."""
    with _unmoved(), suppress(RuntimeError, AttributeError):
        value: Value = setting.read()
        return value if setting.admits(value) else None
    return None


@contextmanager
def _unmoved() -> Iterator[None]:
    """Keep PyTorch's advice on its older and newer ways from who has not asked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _has(name: str) -> bool:
    """Tell whether this PyTorch has a setting, though it may not tell it now."""
    try:
        with _unmoved():
            _SETTINGS[name].read()
    except AttributeError:
        return False
    except RuntimeError:
        return True
    return True


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _read_determinism() -> str:
    return _DETERMINISM[torch.get_deterministic_debug_mode()]


def _read_attribute(name: str) -> Any:
    return operator.attrgetter(name)(torch)


def _write_attribute(name: str, value: Value) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(operator.attrgetter(owner)(torch), attribute, value)


_SETTINGS: Mapping[str, _Setting] = {
    "float32_matmul_precision": _Setting(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        ("highest", "high", "medium"),
    ),
    "deterministic_debug_mode": _Setting(
        _read_determinism, torch.set_deterministic_debug_mode, _DETERMINISM
    ),
    **{
        name: _Setting(partial(_read_attribute, name), partial(_write_attribute, name), values)
        for name, values in _ATTRIBUTES.items()
    },
}
