"""What the slots of a replay hold besides results: demands on values, saved values, constants."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from et_replay.execution_trace import tensors
from et_replay.formats.resources import resource_folders
from et_replay.program.program import Call, Program
from et_replay.replay.recorded_integers import recorded_integers
from et_replay.replay.requirement import Requirement


class Contents:
    """Gathered call by call while a program is prepared.

    `requirements` are those of the values of each storage, `saved` the values of tensors that the
    observer saved beside the trace, `constants` the arguments that are no tensors.
    """

    def __init__(self, program: Program) -> None:
        self.requirements: dict[int, Requirement] = {}
        self.saved: dict[int, torch.Tensor] = {}
        self.constants: list[object] = []
        self.notes: list[str] = []
        self._program = program
        self._folders = resource_folders(program.trace.source)

    def add_call(self, call: Call, requirements: Mapping[int, Requirement]) -> None:
        """Take in what `call` demands of its flat inputs, and what was saved of them."""
        for flat_index, requirement in requirements.items():
            tensor = call.inputs[flat_index]
            if tensor >= 0:
                storage = self._program.tensors[tensor].storage
                known = self.requirements.get(storage)
                self.requirements[storage] = requirement if known is None else known & requirement
        if self._folders:
            self._read_saved(call, requirements)

    def add_constant(self, value: object) -> int:
        """Give a constant its slot, behind those of the tensors."""
        self.constants.append(value)
        return len(self._program.tensors) + len(self.constants) - 1

    def _read_saved(self, call: Call, requirements: Mapping[int, Requirement]) -> None:
        for flat_index, ref in enumerate(tensors(call.node.inputs)):
            tensor = call.inputs[flat_index]
            if tensor < 0 or tensor in self.saved:
                continue
            found = recorded_integers(
                self._folders, call.node.id, flat_index, ref, requirements.get(flat_index)
            )
            if found.values is not None:
                self.saved[tensor] = found.values
            if found.doubt:
                self.notes.append(f"Saved values are not used: {found.doubt}.")
