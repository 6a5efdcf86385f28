"""Short ways to write a trace of real operators, to replay it, and to see values inside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from program.programs import program_of
from trace_builder import NodeSpec, T, Typed, operator

from et_replay.program import Mode, Program
from et_replay.replay.engine import ReplayOptions, _Replay, replay
from et_replay.replay.result import ReplayResult
from et_replay.replay.target import choose_target

MIB = 2**20

_LIBRARY = torch.library.Library("et_replay_test", "DEF")
_LIBRARY.define("see(Tensor self) -> ()")
_SEEN: list[Any] = []
_LIBRARY.impl("see", lambda value: _SEEN.append(value.tolist()), "CompositeExplicitAutograd")


def call(
    id: int, name: str, inputs: Sequence[object], outputs: Sequence[object] = (), **others: Any
) -> NodeSpec:
    """Return a recorded call of `aten::name` with torch's own schema; `name` may have an overload.

    The observer records every argument of the schema, those that have their defaults too.
    """
    packet, _, overload = name.partition(".")
    schema = str(getattr(getattr(torch.ops.aten, packet), overload or "default")._schema)
    parent = others.pop("parent", 2)
    return operator(id, f"aten::{packet}", parent, inputs, outputs, schema=schema, **others)


def see(id: int, tensor: Typed) -> NodeSpec:
    """Return a call that shows the values of `tensor` to `values_seen`."""
    schema = "et_replay_test::see(Tensor self) -> ()"
    return operator(id, "et_replay_test::see", 2, [tensor], schema=schema)


def floats(number: int, *shape: int, offset: int = 0, device: str = "cuda:0") -> Typed:
    """Return a float tensor whose tensor id and storage id are `number`."""
    return T(number, number, offset, torch.Size(shape).numel(), 4, device, shape)


def integers(number: int, *shape: int, device: str = "cuda:0") -> Typed:
    """Return an int64 tensor whose tensor id and storage id are `number`."""
    return T(number, number, 0, torch.Size(shape).numel(), 8, device, shape, dtype="long int")


def run(
    program: Program,
    mode: Mode = Mode.PRE_ALLOCATE,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ReplayResult:
    """Replay `program`, once unless `options` say otherwise."""
    _SEEN.clear()
    return replay(program, _options(mode, device, options), progress)


def held(
    program: Program, mode: Mode = Mode.PRE_ALLOCATE, device: str = "cpu", **options: Any
) -> _Replay:
    """Replay `program` and keep the replay with all that it still holds."""
    target = choose_target(device, program.device)
    with torch.inference_mode():
        replayed = _Replay(program, _options(mode, device, options), target, None)
        replayed.result()
    return replayed


def values_seen(
    folder: Path, *nodes: NodeSpec, mode: Mode = Mode.PRE_ALLOCATE, **options: Any
) -> list[Any]:
    """Replay `nodes` on the CPU, all of them as recorded; return what `see` was shown, in order."""
    result = run(program_of(folder, *nodes), mode, **options)
    assert result.coverage.reasons == []
    return seen()


def seen() -> list[Any]:
    """Return what `see` was shown in the last replay, in order."""
    return list(_SEEN)


def reasons(result: ReplayResult) -> list[tuple[str, int, str, str]]:
    """Return (operator, count, outcome, reason) of all that was not executed as recorded."""
    return [
        (each.name, each.count, each.outcome.value, each.reason) for each in result.coverage.reasons
    ]


def _options(mode: Mode, device: str, options: dict[str, Any]) -> ReplayOptions:
    return ReplayOptions(mode, device, **{"warmup": 0, "iterations": 1, **options})
