"""The source of a generated kernel in, what its text says of its parameters out; nothing runs.

def triton_poi_fused_embedding_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x1), None, eviction_policy='evict_last')
    tmp1 = tl.full([XBLOCK], 512, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert((0 <= tmp4) & (tmp4 < 512), "index out of bounds: 0 <= tmp4 < 512")
    tmp6 = tl.load(in_ptr1 + (x0 + 256*tmp4), None)
    tl.store(out_ptr0 + (x2), tmp6, None)
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from et_replay.execution_trace import Node, TensorRef
from et_replay.formats.resources import kernel_source, resource_folders

_MUTATED = re.compile(r"'mutated_arg_names': \[([^\]]*)\]")
_ASSERTED = re.compile(r"tl\.device_assert\(\(*0 <= (\w+)\) & \(\1 < (\d+)\)")
_ASSIGNED = re.compile(r"^ +(\w+) = (.+)$", re.MULTILINE)
_CHOICE = re.compile(r"tl\.where\(\w+, (\w+), (\w+)\)")
_LOAD = re.compile(r"tl\.load\((\w+) \+ ")


class KernelText(NamedTuple):
    """The parameters of a kernel, in the order of its arguments, and what it does with them."""

    parameters: tuple[str, ...]
    body: str
    mutated: str

    def written_unread(self) -> frozenset[int]:
        """List by place the parameters that the kernel stores to and never reads.

        torch names `in_out_ptr` what takes the place of another buffer, which shows by a load where
        that holds anything yet, and lists as mutated what is the caller's: of that a part may be
        written alone.
        """
        return frozenset(
            place
            for place, name in enumerate(self.parameters)
            if (name.startswith("in_out_ptr") or f"'{name}'" not in self.mutated)
            and 0 < len(re.findall(rf"tl\.store\({name}\b", self.body)) == self._mentions(name)
        )

    def written(self) -> frozenset[int]:
        """List by place the parameters that the kernel stores to or changes in place."""
        return frozenset(
            place
            for place, name in enumerate(self.parameters)
            if re.search(rf"tl\.(store|atomic_\w+)\({name}\b", self.body)
        )

    def index_limits(self) -> dict[int, int]:
        """Map by place parameters whose entries index something to what they must stay below.

        A kernel asserts that of each index, on the GPU, where a failure ends the process's use of
        it. Entries below zero count from the end, so that 0 is the least that is valid always.
        """
        assigned = dict(_ASSIGNED.findall(self.body))
        limits: dict[int, int] = {}
        for index, limit in _ASSERTED.findall(self.body):
            pending, seen = [index], set()
            while pending:
                name = pending.pop()
                seen.add(name)
                text = assigned.get(name, "")
                if choice := _CHOICE.fullmatch(text):
                    pending.extend(set(choice.groups()) - seen)
                elif (load := _LOAD.match(text)) and load[1] in self.parameters:
                    place = self.parameters.index(load[1])
                    limits[place] = min(limits.get(place, int(limit)), int(limit))
        return limits

    def _mentions(self, name: str) -> int:
        return len(re.findall(rf"\b{name}\b", self.body))


class KernelTexts:
    """Reads the kernels that nodes of a trace launch, each once, from the folders beside it."""

    def __init__(self, trace: str) -> None:
        self._folders = resource_folders(trace)
        self._read: dict[tuple[str, str], KernelText | None] = {}

    def of(self, node: Node) -> KernelText | None:
        """Return the text of the kernel that `node` launches, None where it is not to be had."""
        key = node.kernel_file, node.name
        if key not in self._read:
            source = kernel_source(self._folders, node.kernel_file)
            self._read[key] = None if source is None else read_kernel_text(source, node.name)
        return self._read[key]


def flat_indices(node: Node, places: Container[int]) -> Iterator[int]:
    """Yield the flat index of the tensors at `places`; a kernel is given no lists."""
    flat = 0
    for place, value in enumerate(node.inputs):
        if isinstance(value, TensorRef):
            if place in places:
                yield flat
            flat += 1


def read_kernel_text(source: Path, name: str) -> KernelText | None:
    """Read the kernel `name`; None where there is none in the form that torch writes.

    Where torch was told to give no unique names, every kernel is called `triton_`.
    """
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    head = re.search(rf"^def (?:{re.escape(name)}|triton_)\(([^)]*)\):$", text, re.MULTILINE)
    mutated = _MUTATED.search(text)
    if head is None or mutated is None:
        return None
    parameters = tuple(part.partition(":")[0].strip() for part in head[1].split(","))
    return KernelText(parameters, text[head.end() :], mutated[1])
