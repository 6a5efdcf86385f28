"""Traces of many variants in, what a replay of each of them showed out."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from et_replay.execution_trace import ExecutionTrace, TensorRef
from et_replay.formats import open_trace
from et_replay.program import Mode, build_program, select_window
from et_replay.replay.conforming import is_laid_out_as
from et_replay.replay.dtypes import torch_dtype
from et_replay.replay.engine import ReplayOptions, _Replay
from et_replay.replay.first_run import FirstRun
from et_replay.replay.prepared import PreparedCall, PreparedOperation, flatten
from et_replay.replay.result import Outcome
from et_replay.replay.target import choose_target


@dataclass
class Variant:
    """What a replay of one variant showed; `remarks` are outcome, operator and reason.

    Besides the outcomes of a replay there are `differs`, for results that are not as recorded
    though nothing says so, and `error`.
    """

    name: str
    operations: int = 0
    as_recorded: int = 0
    remarks: list[tuple[str, str, str]] = field(default_factory=list)


class Checked(FirstRun):
    """Runs each call for the first time, and compares its results with what was recorded."""

    def __init__(self, first: FirstRun) -> None:
        super().__init__(first._store, first._policy, first._steady)
        self.differences: dict[int, tuple[str, str]] = {}

    def run(self, operation: PreparedOperation, call: PreparedCall) -> Any:
        """Run `call`, and note what of its results is not as recorded."""
        result = super().run(operation, call)
        leaves = [leaf for leaf in flatten(result) if isinstance(leaf, torch.Tensor)]
        refs = [ref for ref in call.recorded if ref.defined]
        difference = difference_of(leaves, refs)
        if difference and call.recorded and operation.outcome is Outcome.EXECUTED:
            self.differences[operation.node_id] = (operation.name, difference)
        return result


def difference_of(leaves: list[torch.Tensor], refs: list[TensorRef]) -> str:
    """Name the first property in which results differ from the recorded ones, "" if in none."""
    if len(leaves) != len(refs):
        return f"{len(leaves)} results, recorded {len(refs)}"
    for leaf, ref in zip(leaves, refs, strict=True):
        if tuple(leaf.shape) != ref.shape:
            return f"shape {tuple(leaf.shape)}, recorded {ref.shape}"
        if leaf.dtype is not torch_dtype(ref.dtype):
            return f"type {leaf.dtype}, recorded {ref.dtype}"
        if not is_laid_out_as(leaf, ref):
            return f"strides {leaf.stride()}, recorded {ref.strides}"
    return ""


def check_all(folder: Path, mode: Mode, only: str = "") -> Iterator[Variant]:
    """Replay the variants in `folder` whose names match `only`, once each, on the CPU."""
    traces: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in json.loads((folder / "index.json").read_text())["variants"]:
        if re.search(only, line["name"]):
            traces[line["trace"]].append(line)
    for name, lines in traces.items():
        trace = open_trace(folder / name)
        for line in lines:
            yield check(trace, line, mode)


def check(trace: ExecutionTrace, line: dict[str, Any], mode: Mode) -> Variant:
    """Replay the window of one variant."""
    program = build_program(trace, select_window(trace, f"{line['first']}:{line['end']}"))
    variant = Variant(line["name"], len(program.operations))
    if not program.operations:
        return variant
    options = ReplayOptions(mode, "cpu", warmup=0, iterations=1)
    try:
        with torch.inference_mode():
            replay = _Replay(program, options, choose_target("cpu", program.device), None)
            first = replay._iteration._first = Checked(replay._iteration._first)
            replay.result()
    except Exception as error:  # whatever it is, it is what is looked for
        variant.remarks.append(("error", "", f"{type(error).__name__}: {error}"))
        return variant
    for operation in replay._iteration.operations:
        found = [(operation.outcome.value, operation.name, why) for why in operation.reasons]
        if not found and operation.node_id in first.differences:
            found = [("differs", *first.differences[operation.node_id])]
        variant.remarks += found
        variant.as_recorded += not found
    return variant
