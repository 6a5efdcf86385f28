"""A random little tensor program over an allocator that recycles addresses, and its trace.

It makes every allocation itself, so the truth about each storage is known by construction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trace_builder import UNDEFINED, NodeSpec, T, node, operator

NULL = 0


@dataclass(eq=False)
class Block:
    """One allocation: the truth that a reading of the trace must find."""

    address: int
    elements: int
    operation: int
    owners: tuple[int, ...]
    scratch: bool = False
    references: int = 0
    proven: int = 0
    last_node_id: int = -1


@dataclass(eq=False)
class Tensor:
    """One tensor object; its own address is recycled like that of a block."""

    address: int
    block: Block
    offset: int
    elements: int
    seen: bool = False


@dataclass
class Record:
    """One node while it runs, and what it turns out to show."""

    id: int
    parent: int
    label: bool
    inputs: list[object] = field(default_factory=list)
    outputs: list[object] = field(default_factory=list)
    given: list[Block | None] = field(default_factory=list)
    made: list[Block | None] = field(default_factory=list)


class FakeProgram:
    """Runs `steps` random operations at once; `blocks` and `records` are the result."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.records: list[Record] = []
        self.blocks: list[Block] = []
        self._next_id = 3
        self._fresh = 1
        self._free: list[int] = []
        self._free_tensors: list[int] = []
        self._ids: dict[tuple[str, int], int] = {}
        self._stack: list[int] = []
        self._operation = -1
        self._saved: list[Tensor] = []
        self._pinned = self._tensor(self._allocate())
        top = [self._tensor(self._allocate()) for _ in range(3)]
        self._touch([self._pinned])
        for _ in range(steps):
            self._step(top)
        self._touch([self._pinned])

    def specs(self) -> list[NodeSpec]:
        """Return the nodes in completion order, as the observer writes them."""
        return [
            (node if each.label else operator)(
                each.id, "ns::any", each.parent, each.inputs, each.outputs
            )
            for each in reversed(self.records)
        ]

    def storage_id(self, block: Block) -> int:
        return self._ids["block", block.address]

    # Memory

    def _allocate(self, fresh: bool = False, scratch: bool = False) -> Block:
        if self._free and not fresh and self.random.random() < 0.8:
            address = self._free.pop()
        else:
            address = self._fresh
            self._fresh += 1
        elements = self.random.choice([1, 10, 100, 1000])
        block = Block(address, elements, self._operation, tuple(self._stack), scratch)
        self.blocks.append(block)
        return block

    def _tensor(self, block: Block, offset: int = 0, elements: int | None = None) -> Tensor:
        if self._free_tensors and self.random.random() < 0.8:
            address = self._free_tensors.pop()
        else:
            address = self._fresh
            self._fresh += 1
        block.references += 1
        return Tensor(address, block, offset, block.elements if elements is None else elements)

    def _drop(self, tensor: Tensor) -> None:
        self._release(tensor.block)
        self._free_tensors.append(tensor.address)

    def _release(self, block: Block) -> None:
        block.references -= 1
        if block.references == 0:
            self._free.append(block.address)

    # Recording

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _id_of(self, kind: str, address: int) -> int:
        if (kind, address) not in self._ids:
            self._ids[kind, address] = self._new_id()
        return self._ids[kind, address]

    def _show(self, record: Record, tensor: Tensor) -> object:
        tensor.seen = True
        block = tensor.block
        block.proven = max(block.proven, 4 * (tensor.offset + tensor.elements))
        block.last_node_id = max(block.last_node_id, record.id)
        tensor_id = self._id_of("tensor", tensor.address)
        return T(tensor_id, self._id_of("block", block.address), tensor.offset, tensor.elements, 4)

    def _noise(self, values: list[object], blocks: list[Block | None]) -> None:
        if self.random.random() < 0.1:
            values.append(UNDEFINED)
            blocks.append(None)

    def _begin(self, inputs: Iterable[Tensor], label: bool = False) -> Record:
        record = Record(self._new_id(), self._stack[-1] if self._stack else 2, label)
        if not self._stack and not label:
            self._operation += 1
        self._stack.append(record.id)
        self.records.append(record)
        for tensor in inputs:
            self._noise(record.inputs, record.given)
            record.inputs.append(self._show(record, tensor))
            record.given.append(tensor.block)
        if self.random.random() < 0.2:
            record.inputs = [record.inputs, 1.0]
        return record

    def _end(self, record: Record, outputs: Iterable[Tensor]) -> None:
        for tensor in outputs:
            self._noise(record.outputs, record.made)
            record.outputs.append(self._show(record, tensor))
            record.made.append(tensor.block)
        assert self._stack.pop() == record.id

    # Operations. `seen` are the tensors that the code of the moment holds.

    def _pick(self, seen: list[Tensor], most: int) -> list[Tensor]:
        return self.random.sample(seen, min(len(seen), self.random.randint(0, most)))

    def _touch(self, tensors: list[Tensor]) -> None:
        self._end(self._begin(tensors), [])

    def _step(self, seen: list[Tensor]) -> None:
        actions: list[Callable[[list[Tensor]], None]] = [
            self._compute, self._compute, self._view, self._in_place, self._resize,
            self._composite, self._composite, self._forget, self._label, self._empty,
        ]  # fmt: skip
        if self._stack:
            actions += [self._use_scratch, self._use_scratch, self._use_pinned]
        else:
            actions += [self._swap, self._recall]
        self.random.choice(actions)(seen)

    def _compute(self, seen: list[Tensor]) -> None:
        record = self._begin(self._pick(seen, 2))
        made = []
        for _ in range(self.random.randint(0, 2)):
            if self.random.random() < 0.5:
                made.append(self._tensor(self._allocate()))
            else:
                child = self._begin([])
                made.append(self._tensor(self._allocate()))
                self._end(child, made[-1:])
        self._end(record, made)
        seen += made

    def _view(self, seen: list[Tensor]) -> None:
        for base in self._pick(seen, 1):
            record = self._begin([base])
            offset = self.random.randrange(base.block.elements)
            elements = self.random.randint(1, base.block.elements - offset)
            view = self._tensor(base.block, offset, elements)
            self._end(record, [view])
            seen.append(view)

    def _in_place(self, seen: list[Tensor]) -> None:
        picked = self._pick(seen, 2)
        self._end(self._begin(picked), picked[:1])

    def _resize(self, seen: list[Tensor]) -> None:
        """Move a tensor to a new block, as resize_ does."""
        for tensor in self._pick([each for each in seen if self._owns(each)], 1):
            record = self._begin([tensor])
            old, new = tensor.block, self._allocate()
            new.references += 1
            tensor.block, tensor.offset, tensor.elements = new, 0, new.elements
            self._end(record, [tensor])
            self._release(old)

    def _owns(self, tensor: Tensor) -> bool:
        """Tell whether the running operator made the block itself; its caller holds the others."""
        within = not self._stack or self._stack[-1] in tensor.block.owners
        return within and tensor.block is not self._pinned.block

    def _composite(self, seen: list[Tensor]) -> None:
        if len(self._stack) > 3:
            return
        given = self._pick(seen, 3)
        record = self._begin(given)
        local = list(given)
        for _ in range(self.random.randint(1, 5)):
            self._step(local)
        visible = {tensor.block for tensor in given}
        inner = [each for each in local if each not in given]
        fit = [each for each in inner if self._owns(each) or each.block in visible]
        result = self._pick(fit, 2)
        for tensor in inner:
            if tensor not in result:
                self._save_or_drop(tensor)
        self._end(record, result)
        seen += result

    def _save_or_drop(self, tensor: Tensor) -> None:
        """Keep something for a later operation, as autograd does behind the trace's back."""
        if not tensor.block.scratch and self._owns(tensor) and self.random.random() < 0.2:
            self._saved.append(tensor)
        else:
            self._drop(tensor)

    def _forget(self, seen: list[Tensor]) -> None:
        for tensor in self._pick([each for each in seen if self._owns(each)], 3):
            if not self._stack or tensor.block.owners:
                seen.remove(tensor)
                self._drop(tensor)

    def _label(self, seen: list[Tensor]) -> None:
        shown = [each for each in seen if each.block.last_node_id >= 0]
        self._end(self._begin(self._pick(shown, 2), label=True), [])

    def _empty(self, seen: list[Tensor]) -> None:
        record = self._begin([])
        nothing = T(self._new_id(), self._id_of("block", NULL), 0, 0, 4)
        record.outputs.append(nothing)
        record.made.append(None)
        self._end(record, [])

    def _use_scratch(self, seen: list[Tensor]) -> None:
        """Hand a child memory that the kernel around it allocated without a node.

        An address that something inside the same kernel had before would show no change.
        """
        kernel = self._stack[-1]
        had = {block.address for block in self.blocks if kernel in block.owners}
        fresh = bool(self._free) and self._free[-1] in had
        scratch = self._tensor(self._allocate(fresh, scratch=True))
        self._end(self._begin([scratch, *self._pick(seen, 1)]), [scratch])
        seen.append(scratch)

    def _use_pinned(self, seen: list[Tensor]) -> None:
        """Use state that the kernel holds without being given it."""
        self._touch([self._pinned])

    def _swap(self, seen: list[Tensor]) -> None:
        """Give a tensor another storage without a node, as `.data =` does, and use it.

        Only one in a storage made here: other ids may as well be recycled ones.
        """
        made = [each for each in seen if each.seen and each.block.operation >= 0]
        for tensor in self._pick(made, 1):
            self._release(tensor.block)
            tensor.block = self._allocate(fresh=True)
            tensor.block.elements = tensor.elements
            tensor.block.operation += 1
            tensor.block.references += 1
            tensor.offset, tensor.elements = 0, tensor.block.elements
            self._touch([tensor])

    def _recall(self, seen: list[Tensor]) -> None:
        self._touch(self._pick(self._saved, 2))
        if self._saved and self.random.random() < 0.5:
            self._drop(self._saved.pop())
