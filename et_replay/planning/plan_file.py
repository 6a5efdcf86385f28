"""Plans to JSON and back: one object, the storages by columns.

{"et_replay_plan": 1, "source": "x.json", "digest": "sha256:...", "arena_bytes": 4096, ...,
 "classes": {"passing": {"storages": 2, "bytes": 4096}},
 "columns": {"storage": [0, 1], "offset": [0, 2048], "size": [2048, 2048], "start": [1, ...], ...}}

`tensor_allocation_mode`, `window`, `of_table` and `repetition` may be missing, as they are in older
files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Literal, cast

import msgspec
import numpy as np

from et_replay import __version__
from et_replay.errors import PlanError
from et_replay.events import Int64Array
from et_replay.formats.source import read_source
from et_replay.planning.lifetimes import Lifetimes, StorageClass
from et_replay.planning.plan import Plan
from et_replay.planning.plausibility import implausibility_of
from et_replay.planning.steady import Repetition

VERSION = 1
_COMPARED = ("storage", "size", "stream", "start", "end")


_Mode = Literal["", "pre", "lazy", "stalloc", "job"]


class _Class(msgspec.Struct):
    storages: int
    bytes: int


class _Columns(msgspec.Struct):
    storage: list[int]
    offset: list[int]
    size: list[int]
    start: list[int]
    end: list[int]
    stream: list[int]
    alignment: list[int]
    storage_class: list[int]


class _Repetition(msgspec.Struct):
    begins: list[int]
    period: int
    marked: bool
    twin: list[int]
    start: list[int]
    end: list[int]


class _File(msgspec.Struct):
    et_replay_plan: int
    et_replay: str
    source: str
    digest: str
    arena_bytes: int
    lower_bound_bytes: int
    proven: bool
    method: str
    planning_time_ns: int
    ticks: int
    iteration: tuple[int, int] | None
    classes: dict[str, _Class]
    notes: list[str]
    columns: _Columns
    tensor_allocation_mode: _Mode = ""
    window: str = ""
    of_table: bool = False
    repetition: _Repetition | None = None


def encode_plan(plan: Plan) -> bytes:
    """Write a plan as JSON."""
    lives = plan.lifetimes
    columns = {name: getattr(lives, name).tolist() for name in _Columns.__struct_fields__[2:]}
    file = _File(
        et_replay_plan=VERSION,
        et_replay=__version__,
        source=_as_text(plan.source),
        digest=digest(lives),
        arena_bytes=plan.arena_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        proven=plan.proven,
        method=plan.method,
        planning_time_ns=plan.planning_time_ns,
        ticks=lives.ticks,
        iteration=plan.iteration,
        classes=_classes(lives),
        notes=[_as_text(note) for note in plan.notes],
        columns=_Columns(storage=lives.storage.tolist(), offset=plan.offset.tolist(), **columns),
        tensor_allocation_mode=cast("_Mode", plan.mode),
        window=_as_text(plan.window),
        of_table=plan.of_table,
        repetition=_repetition(plan),
    )
    return msgspec.json.encode(file) + b"\n"


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file, or standard input for `-`; the plan in it is checked by the validator.

    Raises TraceError where there is nothing to read, PlanError where it holds no valid plan.
    """
    source = read_source(path)
    try:
        file = msgspec.json.decode(source.text, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PlanError(
            f"{source.name} is not a plan file: {error}; et_replay plan --output makes one."
        ) from None
    if file.et_replay_plan != VERSION:
        raise PlanError(
            f"{source.name} is a plan file of version {file.et_replay_plan}, expected {VERSION};"
            f" it was written by et_replay {file.et_replay}."
        )
    plan = _plan(source.name, file)
    found = digest(plan.lifetimes)
    if found != file.digest:
        raise PlanError(f"{source.name} was changed: its digest is {file.digest}, not {found}.")
    fault = implausibility_of(plan)
    if not fault and file.classes != _classes(plan.lifetimes):
        fault = "The counts in its classes are not those of its column storage_class."
    if fault:
        raise PlanError(f"{source.name} is not valid: {fault}")
    return plan


def check_plan(plan: Plan, lives: Lifetimes, source: str, mode: str = "", window: str = "") -> None:
    """Raise PlanError with the first difference if `plan` was not made for these storages.

    `mode` and `window` are those with which `source` was read, where it is an execution trace.
    """
    planned = plan.lifetimes
    if digest(planned) == digest(lives):
        return
    shared = min(len(planned), len(lives))
    differing = np.zeros(shared, dtype=bool)
    for name in _COMPARED:
        differing |= getattr(planned, name)[:shared] != getattr(lives, name)[:shared]
    first = int(np.argmax(differing)) if differing.any() else shared
    flag = f" --tensor-allocation-mode {mode}" if mode else ""
    how = _how(mode, window)
    if source == plan.source and how in ("", _how(plan.mode, plan.window)):
        how = " as it is read here"
    raise PlanError(
        f"The plan was made from {plan.source}{_how(plan.mode, plan.window)}, not from"
        f" {source}{how}; the first difference is storage {first}:"
        f" expected {_describe(planned, first)}, got {_describe(lives, first)}."
        f" Make a plan for it with et_replay plan{flag}."
    )


def _how(mode: str, window: str) -> str:
    """Say how an execution trace was read, as far as it is known."""
    flags = {"--tensor-allocation-mode": mode, "--window": window}
    told = [f"{flag} {value}" for flag, value in flags.items() if value]
    return f" with {' and '.join(told)}" if told else ""


def digest(lives: Lifetimes) -> str:
    """Name what a plan is made from: a hash of storages, sizes, streams and lifetimes."""
    content = hashlib.sha256()
    for name in _COMPARED:
        content.update(getattr(lives, name).astype("<i8").tobytes())
    return f"sha256:{content.hexdigest()}"


def sizes_by_class(lives: Lifetimes) -> dict[StorageClass, tuple[int, int]]:
    """Count the storages of each class that there is, and their bytes."""
    found = {}
    for kind in StorageClass:
        of_kind = lives.storage_class == kind
        if of_kind.any():
            found[kind] = int(np.count_nonzero(of_kind)), int(lives.size[of_kind].sum())
    return found


def _classes(lives: Lifetimes) -> dict[str, _Class]:
    return {
        kind.name.lower(): _Class(count, size)
        for kind, (count, size) in sizes_by_class(lives).items()
    }


def _as_text(name: str) -> str:
    """Write the bytes of a file's name that are no UTF-8, which JSON cannot hold, as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _repetition(plan: Plan) -> _Repetition | None:
    found = plan.repetition
    if found is None:
        return None
    columns = (column.tolist() for column in (found.twin, found.start, found.end))
    return _Repetition(list(found.begins), found.period, found.marked, *columns)


def _read_repetition(name: str, file: _File) -> Repetition | None:
    found = file.repetition
    if found is None:
        return None
    numbers = {"begins": found.begins, "period": [found.period]}
    columns = {"twin": found.twin, "start": found.start, "end": found.end}
    for key, column in (*numbers.items(), *columns.items()):
        _check_column(name, key, column, len(file.columns.storage if key in columns else column))
    twin, start, end = (np.array(column, np.int64) for column in columns.values())
    return Repetition(tuple(found.begins), found.period, twin, start, end, found.marked)


def _plan(name: str, file: _File) -> Plan:
    columns = {key: np.array(value, np.int64) for key, value in _lists(name, file.columns).items()}
    offset: Int64Array = columns.pop("offset")
    return Plan(
        source=file.source,
        lifetimes=Lifetimes(**columns, ticks=file.ticks),
        offset=offset,
        arena_bytes=file.arena_bytes,
        lower_bound_bytes=file.lower_bound_bytes,
        proven=file.proven,
        method=file.method,
        planning_time_ns=file.planning_time_ns,
        iteration=file.iteration,
        notes=tuple(file.notes),
        mode=file.tensor_allocation_mode,
        window=file.window,
        of_table=file.of_table,
        repetition=_read_repetition(name, file),
    )


def _lists(name: str, columns: _Columns) -> dict[str, list[int]]:
    lists: dict[str, list[int]] = msgspec.structs.asdict(columns)
    for key, column in lists.items():
        _check_column(name, key, column, len(columns.storage))
    return lists


def _check_column(name: str, key: str, column: Sequence[int], rows: int) -> None:
    if len(column) != rows:
        raise PlanError(
            f"{name} is not valid: expected {rows} rows in its column {key}, got {len(column)}."
        )
    if any(not -(2**63) <= value < 2**63 for value in column):
        raise PlanError(f"{name} is not valid: its column {key} holds a number beyond 64 bits.")


def _describe(lives: Lifetimes, index: int) -> str:
    if index >= len(lives):
        return "none"
    return (
        f"{lives.size[index]} bytes in [{lives.start[index]}, {lives.end[index]})"
        f" on stream {lives.stream[index]} as storage {lives.storage[index]}"
    )
