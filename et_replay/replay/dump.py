"""A program in, the text of a Python file that replays it with nothing but torch out."""

from __future__ import annotations

import inspect
import json
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable

import torch

from et_replay.errors import UsageError
from et_replay.program.program import Call, Operation, Program
from et_replay.replay import dumped
from et_replay.replay.arguments import BoundCall
from et_replay.replay.dump_values import created, literal, saved_entries, viewed
from et_replay.replay.imports import import_modules
from et_replay.replay.operators import Unresolvable, has_kernel, resolve
from et_replay.replay.options import ReplayOptions
from et_replay.replay.prepare import Preparer
from et_replay.replay.prepared import PreparedCall, PreparedOperation
from et_replay.replay.requirement import Requirement
from et_replay.replay.target import Target, choose_target
from et_replay.torch_settings import as_code

_HELPERS = (
    *(dumped.uniform, dumped.integers, dumped.zeros, dumped.empty, dumped.repeated),
    *(dumped.rising, dumped.view, dumped.hold, dumped.choose, dumped.shaped, dumped.flat),
)

_HEAD = '''"""{what}

Replays {where}, with made-up values of the recorded shapes,
types and layouts. It needs PyTorch alone (written with {version}):

    python THIS_FILE [DEVICE]
"""

from __future__ import annotations

{system}import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
{imports}
{settings}DEVICE = torch.device(sys.argv[1] if len(sys.argv) > 1 else {device!r})
HOST = torch.device("cpu")
'''

_END = """

if __name__ == "__main__":
    measure(inputs, iteration)
"""


def dump(program: Program, options: ReplayOptions) -> tuple[str, int]:
    """Write the replay of `program` as a file of its own; return it and the operations it replays.

    Nothing is run, so calls that fail here are written down too; a call that cannot even be made
    is a comment, and its results are made up. Raises UsageError for a device that cannot be had.
    """
    target = choose_target(options.device, program.device)
    if target.device.type == "meta":
        raise UsageError(
            "--dump needs operators that compute, which those on meta do not: use --device cuda or"
            " --device cpu."
        )
    import_modules(options.imports)
    with torch.inference_mode():
        writer = _Writer(program, target, options)
        return writer.text(), len(program.operations) - writer.left_out


class _Writer:
    """Follows a replay's slots, and writes down what would be done to them."""

    def __init__(self, program: Program, target: Target, options: ReplayOptions) -> None:
        self._program = program
        self._target = target
        self._options = options
        preparer = Preparer(program, target, "substitute", run_kernels=False, skips=options.skips)
        self._prepared = preparer.prepare(options.mode)
        self._filled: set[int] = set()
        self._of_storage: dict[int, list[int]] = defaultdict(list)
        for slot, tensor in enumerate(program.tensors):
            self._of_storage[tensor.storage].append(slot)
        self._lines: list[str] = []
        self.left_out = 0

    def text(self) -> str:
        for slot in self._prepared.permanent:
            self._create(slot, blank=False)
        inputs, self._lines = self._lines, []
        pairs = list(zip(self._program.operations, self._prepared.operations, strict=True))
        for operation, prepared in pairs:
            self._add_operation(operation, prepared, is_last=operation is pairs[-1][0])
        body = "\n".join((self._inputs(inputs), self._iteration()))
        return f"{self._head()}{_sources(body)}\n\n{body}{_END}"

    def _head(self) -> str:
        operations = self._program.operations
        what = f"{len(operations)} operations of an execution trace, without the model."
        if len(operations) == 1:
            what = f"One operation of an execution trace: {_plain(operations[0].node.name)}."
        trace, window = self._program.trace.source, self._program.window.name
        settings = "".join(f"{line}\n" for line in as_code(self._options.torch_settings))
        return _HEAD.format(
            what=what,
            where=f"{_plain(trace)}, window {_plain(window)}",
            version=torch.__version__,
            imports="".join(f"import {name}\n" for name in self._options.imports),
            system="import os\n" if "os." in settings else "",
            settings=settings,
            device=str(self._target.device),
        )

    def _inputs(self, lines: list[str]) -> str:
        made = _listed(self._prepared.permanent)
        return (
            "@torch.inference_mode()\ndef inputs() -> list[torch.Tensor]:\n"
            '    """Create what is there before the first operation."""\n'
            f"{_indented(lines)}    return {made}\n"
        )

    def _iteration(self) -> str:
        taken = _listed(self._prepared.permanent)
        return (
            "\n@torch.inference_mode()\n"
            "def iteration(given: list[torch.Tensor]) -> list[torch.Tensor]:\n"
            '    """Run every operation once; return what the last one returned."""\n'
            f"    torch.manual_seed({self._options.seed})\n    {taken} = given\n"
            f"{_indented(self._lines)}"
        )

    def _add_operation(
        self, operation: Operation, prepared: PreparedOperation, is_last: bool
    ) -> None:
        complete = True
        for call in prepared.calls:
            text, reason = None, "; ".join(prepared.reasons)
            if call.made_from is not None:
                try:
                    text = self._call(call, *call.made_from)
                except Unresolvable as error:
                    reason = error.reason
            self._add_call(call, text)
            if text is None:
                complete = False
                name = _plain(prepared.name)
                self._lines.append(f"# {name}, node {prepared.node_id}: {_plain(reason)}")
                self._fill_results(call)
        self.left_out += not complete
        results = [
            slot
            for slot in dict.fromkeys((*operation.call.outputs, *operation.calls[-1].outputs))
            if slot in self._filled
        ]
        if is_last:
            self._lines.append(f"return {_listed(results)}")
            return
        gone = [slot for slot in prepared.cleared if slot in self._filled]
        self._filled.difference_update(gone)
        if gone:
            self._lines.append(f"del {', '.join(f't{slot}' for slot in gone)}")

    def _add_call(self, call: PreparedCall, text: str | None) -> None:
        """Write down a call after what it needs; without `text` only that."""
        for slot in call.inputs:
            self._create(slot, blank=text is not None and slot in call.overwritten)
        if text is not None:
            for slot, requirement in call.enforced:
                self._hold(slot, requirement)
            self._lines.append(text)
            self._filled.update(slot for slot in call.outputs if slot >= 0)

    def _fill_results(self, call: PreparedCall) -> None:
        """Make up what a call that is not made would have returned."""
        for slot in call.outputs if call.made_from is not None else ():
            if slot >= 0:
                self._create(slot, blank=False)

    def _call(self, prepared: PreparedCall, call: Call, bound: BoundCall) -> str:
        """Write a call; raises Unresolvable for one that has no text, or is not torch's own."""
        overload, kind = resolve(call.node), self._target.device.type
        own = bound.function is getattr(overload, "_op", overload)
        if not own and not has_kernel(overload, kind):
            raise Unresolvable(f"torch has no kernel for {kind}")
        arguments = ", ".join(self._arguments(call, bound))
        return self._assigned(prepared, f"{_path(str(overload))}({arguments})", call.node.id)

    def _arguments(self, call: Call, bound: BoundCall) -> Iterable[str]:
        slot, device = call.inputs, self._target.device
        texts = {position: literal(value, device) for position, value in enumerate(bound.args)}
        texts.update((position, f"t{slot[flat]}") for position, flat in bound.singles)
        for position, flats in bound.lists:
            texts[position] = _entries(slot, flats)
        for position, flat in bound.storages:
            if call.outputs[flat] < 0:
                raise Unresolvable("nothing lies in its storage")
            texts[position] = f"t{call.outputs[flat]}.untyped_storage()"
        named = {name: literal(value, device) for name, value in bound.kwargs.items()}
        named.update((name, f"t{slot[flat]}") for name, flat in bound.keyword_singles)
        for name, flats in bound.keyword_lists:
            named[name] = _entries(slot, flats)
        return (*texts.values(), *(f"{name}={text}" for name, text in named.items()))

    def _assigned(self, call: PreparedCall, text: str, node_id: int) -> str:
        """Write down where the results of a call go."""
        note = f"  # node {node_id}"
        if all(slot < 0 for slot in call.outputs):
            return f"{text}{note}"
        if call.conforms:
            shapes = [ref.shape if ref.defined else None for ref in call.recorded]
            text = f"shaped({text}, {shapes})"
        elif call.output is not None and len(call.outputs) == 1:
            return f"t{call.output} = {text}{note}"
        else:
            text = f"flat({text})"
        names = [f"t{slot}" if slot >= 0 else "_" for slot in call.outputs]
        return f"[{', '.join(names)}] = {text}[:{len(names)}]{note}"

    def _create(self, slot: int, blank: bool) -> None:
        """Write down the creation of a tensor that is not there, as TensorStore.create does it."""
        if slot in self._filled:
            return
        self._filled.add(slot)
        tensor = self._program.tensors[slot]
        fellows = [other for other in self._of_storage[tensor.storage] if other != slot]
        base = next((other for other in fellows if other in self._filled), None)
        if base is not None:
            self._lines.append(f"t{slot} = {viewed(f't{base}', tensor)}")
            return
        storage = self._program.storages[tensor.storage]
        host = self._target.place(storage.device).type != self._target.device.type
        requirement = self._prepared.contents.requirements.get(tensor.storage)
        seed = self._options.seed + tensor.storage
        made = created(tensor, storage.size, host, requirement, seed, blank)
        self._lines.append(f"t{slot} = {made}")
        self._fill_saved(slot, fellows)

    def _fill_saved(self, slot: int, fellows: list[int]) -> None:
        """Put what was saved beside the trace of the tensors of a new storage into it."""
        saved = self._prepared.contents.saved
        for place in (slot, *fellows):
            text = saved_entries(saved[place]) if place in saved else None
            if text is not None:
                seen = viewed(f"t{slot}", self._program.tensors[place])
                shape = tuple(self._program.tensors[place].shape)
                self._lines.append(f"{seen}.copy_({text}.view({shape}))")

    def _hold(self, slot: int, requirement: Requirement) -> None:
        """Write down that computed values are brought within their bounds."""
        tensor = self._program.tensors[slot]
        if requirement.total is not None and tensor.dtype == "bool":
            self._lines.append(f"choose(t{slot}, {requirement.total})")
        elif requirement.is_bounded and tensor.dtype != "bool":
            self._lines.append(f"hold(t{slot}, {requirement.low!r}, {requirement.high!r})")


def _path(name: str) -> str:
    """Write how a file gets at `aten.random_.from`: a keyword cannot follow a dot."""
    text = "torch.ops"
    for part in name.split("."):
        text = f"getattr({text}, {part!r})" if keyword.iskeyword(part) else f"{text}.{part}"
    return text


def _entries(slot: tuple[int, ...], flats: Iterable[int]) -> str:
    return f"[{', '.join('None' if flat < 0 else f't{slot[flat]}' for flat in flats)}]"


def _listed(slots: Iterable[int]) -> str:
    return f"[{', '.join(f't{slot}' for slot in slots)}]"


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


def _plain(text: str) -> str:
    """Write what comes from a trace so that it ends neither a comment nor a docstring."""
    return json.dumps(text)[1:-1].replace('\\"', "'").replace("\\", "/")


def _sources(body: str) -> str:
    """Copy the helpers that `body` calls, and those that these call."""
    wanted = {"measure"}
    while True:
        text = "\n".join((body, *(inspect.getsource(f) for f in _HELPERS if f.__name__ in wanted)))
        more = {f.__name__ for f in _HELPERS if re.search(rf"(?<![\w.]){f.__name__}\(", text)}
        if more <= wanted:
            break
        wanted |= more
    used = [f for f in (*_HELPERS, dumped.measure) if f.__name__ in wanted]
    return "\n\n" + "\n\n\n".join(inspect.getsource(each).rstrip() for each in used)
