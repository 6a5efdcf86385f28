"""A rank's trace and its process groups in, every call of torch.distributed in it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from et_replay.execution_trace import ExecutionTrace, TensorRef, Value, tensors
from et_replay.program.argument_names import argument_names
from et_replay.program.communication import RECORD, WAIT, is_asynchronous
from et_replay.ranks.argument_sides import comes_out, goes_in
from et_replay.ranks.calls import RecordedCall, recorded_calls
from et_replay.ranks.groups import Groups
from et_replay.ranks.kinds import BARRIERS, RECEIVE, ROOTED, SEND, has_lists


@dataclass(frozen=True, slots=True)
class Collective:
    """One call of torch.distributed; `kind` is the name of the function there, or `wait`.

    `position` and `node_id` are of the outermost node of it. `group` is an index of the rank's
    Groups, -1 where it is unknown; `group_told` is False where the trace does not tell which of its
    `candidates` it is (one for each set of ranks), and the first was taken. `root` and `peer` are
    ranks of the group; a recv from any source has no peer. Sizes are in elements: `in_sizes` and
    `out_sizes` of each tensor of a list, `in_splits` and `out_splits` (elements too, not rows) what
    goes to and comes from each rank where that is uneven. A send has no output, a recv no input.
    `reduction` is recorded of functional collectives alone. `asynchronous` is None where nothing
    tells but whether a wait follows.
    """

    kind: str
    position: int
    node_id: int
    group: int = -1
    group_told: bool = True
    candidates: tuple[int, ...] = ()
    sequence: int | None = None
    dtype: str = ""
    element_size: int = 0
    in_elements: int = 0
    out_elements: int = 0
    in_sizes: tuple[int, ...] = ()
    out_sizes: tuple[int, ...] = ()
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    reduction: str | None = None
    asynchronous: bool | None = None


def read_collectives(trace: ExecutionTrace, groups: Groups) -> list[Collective]:
    """List all calls of torch.distributed in a trace, in the order in which they began.

    A compiled batch of sends and receives is as many calls, each with its own node below it.
    """
    return [_collective(call, groups) for call in recorded_calls(trace)]


_Arguments = Mapping[str, Value]
_Tensors = Sequence[TensorRef]


def _collective(call: RecordedCall, groups: Groups) -> Collective:
    node, record = call.on_group, call.record
    arguments = dict(zip(argument_names(node.op_schema), node.inputs, strict=False))
    kind = _kind(call)
    given, taken = _of_kind(kind, *_tensors(call, arguments))
    told = (record.in_elements, record.out_elements) if record else (0, 0)
    sizes = [tuple(tensor.numel for tensor in side) for side in (given, taken)]
    rank = _integer(arguments, "root_rank", "dst", "src")
    if rank is None and record is not None:
        rank = record.rank
    tensor = next(iter([*given, *taken]), None)
    found = Collective(
        kind,
        call.position,
        call.nodes[0].id,
        sequence=record.sequence if record else None,
        dtype=tensor.dtype if tensor else "",
        element_size=tensor.itemsize if tensor else 0,
        in_elements=sum(sizes[0]) if tensor else told[0],
        out_elements=sum(sizes[1]) if tensor else told[1],
        in_sizes=sizes[0] if has_lists(kind) else (),
        out_sizes=sizes[1] if has_lists(kind) else (),
        in_splits=_splits(call, arguments, given, "input"),
        out_splits=_splits(call, arguments, taken, "output"),
        root=rank if kind in ROOTED else None,
        peer=rank if kind in (SEND, RECEIVE) else None,
        tag=_integer(arguments, "tag") or 0,
        reduction=_text(call, "reduce_op", "reduceOp"),
        asynchronous=_asynchronous(call, arguments),
    )
    return _placed(found, call, groups)


def _kind(call: RecordedCall) -> str:
    """Return its kind: of all_to_all, what a backend records has two forms under one name."""
    if call.kind == "all_to_all" and call.on_group.name == RECORD:
        given = call.nodes[0].inputs[:1]
        return "all_to_all" if sum(1 for _ in tensors(given)) > 1 else "all_to_all_single"
    return call.kind


def _tensors(call: RecordedCall, arguments: _Arguments) -> tuple[_Tensors, _Tensors]:
    """Return what goes into a call and what comes out of it."""
    node = call.on_group
    if not arguments:
        return list(tensors(node.inputs)), list(tensors(node.outputs))
    given = (value for name, value in arguments.items() if goes_in(name))
    taken = (value for name, value in arguments.items() if comes_out(name))
    made = tensors(node.outputs)
    return list(tensors(tuple(given))), list(tensors(tuple(taken))) or list(made)


def _of_kind(kind: str, given: _Tensors, taken: _Tensors) -> tuple[_Tensors, _Tensors]:
    """Leave out what only stands for another thing: a barrier's tensor, a send's result."""
    if kind == WAIT or kind in BARRIERS:
        return (), ()
    return () if kind == RECEIVE else given, () if kind == SEND else taken


def _splits(
    call: RecordedCall, arguments: _Arguments, side: _Tensors, name: str
) -> tuple[int, ...]:
    """Return the elements of each rank, where a call names other than equal parts."""
    recorded = arguments.get(f"{name}_split_sizes")
    rows = (
        tuple(each for each in recorded if isinstance(each, int))
        if isinstance(recorded, tuple)
        else ()
    )
    if not rows and call.record is not None:
        rows = call.record.in_splits if name == "input" else call.record.out_splits
    if call.kind != "all_to_all_single" or not rows or not side:
        return ()
    return tuple(row * prod(side[0].shape[1:]) for row in rows)


def _asynchronous(call: RecordedCall, arguments: _Arguments) -> bool | None:
    told = is_asynchronous(call.nodes)
    if call.kind == WAIT:
        return None
    if told is None and call.nodes[0].name.partition("::")[0] not in ("c10d", RECORD):
        return True  # a functional collective is waited for by wait_tensor
    argument = arguments.get("async_op", arguments.get("asyncOp"))
    return argument if told is None and isinstance(argument, bool) else told


def _placed(found: Collective, call: RecordedCall, groups: Groups) -> Collective:
    """Say in which group a call is."""
    record = call.record or call.part
    name = record.group_name if record else ""
    name = name or _text(call, "group_name") or ""
    if name or found.kind == WAIT:
        return replace(found, group=groups.find(name))
    ranks = _argument(call, "ranks")
    if isinstance(ranks, tuple):
        return replace(found, group=groups.find_ranks([r for r in ranks if isinstance(r, int)]))
    rank = found.root if found.root is not None else found.peer
    size = _group_size(found, call)
    if groups.is_size_told and size is not None and size > (groups.world_size or size):
        size = None  # no group is that large, so these sizes are wrong
    sized = groups.of_size(size)
    fitting = [each for each in sized if rank is None or rank < len(groups[each].ranks)]
    if not fitting:
        return found
    first: dict[tuple[int, ...], int] = {}
    for each in fitting:
        first.setdefault(groups[each].ranks, each)
    if len(first) == 1:
        return replace(found, group=fitting[0])
    return replace(found, group=fitting[0], group_told=False, candidates=tuple(first.values()))


def _group_size(found: Collective, call: RecordedCall) -> int | None:
    """Work out how many ranks take part, where the sizes tell."""
    recorded = call.record.size if call.record else _argument(call, "group_size")
    if isinstance(recorded, int):
        return recorded
    if "coalesced" in found.kind:
        return None
    lists = {"all_gather": found.out_sizes, "gather": found.out_sizes}
    lists |= {"reduce_scatter": found.in_sizes, "scatter": found.in_sizes}
    lists |= {"all_to_all": found.in_sizes, "all_to_all_single": found.in_splits}
    parts = {"all_gather_into_tensor": (found.out_elements, found.in_elements)}
    parts |= {"reduce_scatter_tensor": (found.in_elements, found.out_elements)}
    whole, part = parts.get(found.kind, (0, 0))
    if part and whole % part == 0:
        return whole // part
    return len(lists.get(found.kind, ())) or None


def _integer(arguments: _Arguments, *names: str) -> int | None:
    values = (arguments.get(name) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def _argument(call: RecordedCall, *names: str) -> Value:
    """Return the argument of one of these names, of whichever form of the call has it."""
    for node in call.nodes:
        arguments = dict(zip(argument_names(node.op_schema), node.inputs, strict=False))
        for name in names:
            if name in arguments:
                return arguments[name]
    return None


def _text(call: RecordedCall, *names: str) -> str | None:
    value = _argument(call, *names)
    return value if isinstance(value, str) else None
