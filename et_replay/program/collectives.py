"""The collectives of a window in, how long each holds its buffers out.

A call of torch.distributed returns before the communication is done, and until then the process
group holds the buffers, inputs too. What a trace tells of the end is a wait: `record_param_comms`
with the name `wait` and the sequence number of the collective, or `_c10d_functional::wait_tensor`
on its result. `is_asynchronized_op` (PyTorch of 2026) goes before that: a synchronous collective
is complete when the call returns, an asynchronous one that nothing waits for at the end of the
window. With neither it counts as synchronous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from et_replay.execution_trace import Node
from et_replay.program.communication import RECORD, WAIT, is_asynchronous, sequence_number
from et_replay.program.generations import Generations
from et_replay.program.nesting import Nesting
from et_replay.program.program import Operation


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A collective under way, by the number that its finder gave it: what a wait for it shows."""

    number: int
    storages: set[int]
    sequence_numbers: set[int]
    asynchronous: bool | None


def is_wait(node: Node) -> bool:
    """Tell whether `node` waits for a collective, and is none itself."""
    if node.name == RECORD:
        return WAIT in node.inputs
    return node.is_collective and node.name.endswith("::wait_tensor")


def hold_buffers(
    operations: Sequence[Operation], nesting: Nesting, generations: Generations
) -> None:
    """Let the storages of every collective live until it is complete.

    An address that the trace shows with another storage before that was free, so this goes first.
    """
    recycled = _recycled(generations)
    for storage, end in _ends(operations, nesting, generations):
        held = generations.storages[storage]
        last = min(end, recycled.get(storage, end + 1) - 1)
        if last > held.last_operation and not held.temporary:
            held.last_operation = last
            held.last_node_id = operations[last].node.id


def _ends(
    operations: Sequence[Operation], nesting: Nesting, generations: Generations
) -> Iterator[tuple[int, int]]:
    """Yield storages with the operation by which a collective that holds them is complete."""
    pending: list[UnderWay] = []
    for k, (operation, place) in enumerate(zip(operations, nesting.top_level(), strict=True)):
        if is_wait(operation.node):
            done = waited_for(operation.node, _storages(operation, generations), pending)
            if done is not None:
                pending.remove(done)
                if done.asynchronous is not False:
                    yield from ((storage, k) for storage in done.storages)
        elif operation.node.is_collective:
            below = nesting.nodes[place : nesting.last[place] + 1]
            records = [node for node in below if node.name == RECORD]
            pending.append(
                UnderWay(
                    k,
                    _storages(operation, generations),
                    {number for node in records if (number := sequence_number(node)) is not None},
                    is_asynchronous((operation.node, *records)),
                )
            )
    for left in pending:
        if left.asynchronous:
            yield from ((storage, len(operations) - 1) for storage in left.storages)


def waited_for(wait: Node, storages: set[int], pending: Sequence[UnderWay]) -> UnderWay | None:
    """Find the collective that `wait` waits for: by number, the first one, else by its result."""
    if wait.name == RECORD:
        number = sequence_number(wait)
        return next((each for each in pending if number in each.sequence_numbers), None)
    return next((each for each in reversed(pending) if each.storages & storages), None)


def _storages(operation: Operation, generations: Generations) -> set[int]:
    call = operation.call
    return {generations.tensors[t].storage for t in (*call.inputs, *call.outputs) if t >= 0}


def _recycled(generations: Generations) -> dict[int, int]:
    """Map each storage whose id names another one later to the operation that first shows this."""
    found: dict[int, int] = {}
    latest: dict[tuple[str, int], int] = {}
    for index, storage in enumerate(generations.storages):
        key = (storage.device, storage.storage_id)
        if key in latest:
            found[latest[key]] = max(storage.operation, storage.first_operation)
        latest[key] = index
    return found
