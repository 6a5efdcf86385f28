"""The settings of PyTorch that decide which kernels run: read in one process, in force in another.

They are told by name, as PyTorch tells them: precision (https://docs.pytorch.org/docs/stable/notes/
cuda.html), determinism (https://docs.pytorch.org/docs/stable/notes/randomness.html), cuDNN.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import torch

from et_replay.errors import ReplayError, first_line

Value = bool | int | str
TorchSettings = Mapping[str, Value]

_PRECISION = "float32_matmul_precision"
_DETERMINISM = "deterministic_debug_mode"
_ATTRIBUTES = (
    "utils.deterministic.fill_uninitialized_memory",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.cudnn.allow_tf32",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
    "backends.cudnn.enabled",
)
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""A variable of the environment, without which cuBLAS is not deterministic."""


def torch_settings() -> dict[str, Value]:
    """Return the settings of this process, of those that this PyTorch knows."""
    settings: dict[str, Value] = {}
    for name, (read, _) in _known().items():
        with suppress(RuntimeError, AttributeError):  # set in two of PyTorch's ways, or not known
            settings[name] = read()
    if workspace := os.environ.get(_WORKSPACE):
        settings[_WORKSPACE] = workspace
    return settings


@contextmanager
def in_force(settings: TorchSettings) -> Iterator[TorchSettings]:
    """Let PyTorch work with these settings; yields those that this changes.

    The workspace of cuBLAS is set for good, and in force if cuBLAS has not been used before. Raises
    ReplayError where PyTorch refuses one.
    """
    known, own = _known(), torch_settings()
    changed = {
        name: value
        for name, value in settings.items()
        if own.get(name) != value and (name in own or name == _WORKSPACE)
    }
    with ExitStack() as stack:
        for name, value in changed.items():
            if name == _WORKSPACE:
                os.environ[_WORKSPACE] = str(value)
                continue
            _, write = known[name]
            stack.callback(write, own[name])
            _write(name, write, value)
        yield changed


def _known() -> dict[str, tuple[Callable[[], Value], Callable[[Any], None]]]:
    attributes = {
        name: (partial(_read_attribute, name), partial(_write_attribute, name))
        for name in _ATTRIBUTES
    }
    return {
        _PRECISION: (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        _DETERMINISM: (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        **attributes,
    }


def _read_attribute(name: str) -> Value:
    value: Value = operator.attrgetter(name)(torch)
    return value


def _write_attribute(name: str, value: Value) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(operator.attrgetter(owner)(torch), attribute, value)


def _write(name: str, write: Callable[[Any], None], value: Value) -> None:
    try:
        write(value)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise ReplayError(
            f"torch {torch.__version__} does not take the setting {name} = {value!r} of the"
            f" captured run: {first_line(error)}."
        ) from error
