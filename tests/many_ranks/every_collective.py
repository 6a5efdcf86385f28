"""Traces of two ranks with every collective, as NCCL's process group leaves it, and right answers.

The k-th value that rank 0 gives to a call is k, from 1 on, and that of rank 1 is 10 more; a call
with several tensors counts on through them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trace_builder import NodeSpec, T, Typed, mark, node, operator, write_trace

Tensors = list[Typed]
Sizes = tuple[int, ...]

_OBJECT = Typed("<Object>", "Object")
_GROUP = "__torch__.torch.classes.c10d.ProcessGroup process_group"
_REDUCE = "__torch__.torch.classes.c10d.ReduceOp reduce_op"
_END = "bool async_op=True, int timeout=-1"
_LATE = (False, -1)


@dataclass(frozen=True)
class Call:
    """A collective of both ranks.

    `given` and `taken` are the sizes of each rank's tensors, the same for both where there is one
    entry; without `taken` they are the same tensors. `arguments` orders what goes into the operator
    of this `schema`, and `right` are all elements that each rank gets, None where it gets nothing
    that counts. `recorded` is the backend's name; functional calls have none.
    """

    name: str
    schema: str
    arguments: Callable[[Tensors, Tensors], Sequence[object]]
    given: Sequence[Sizes]
    taken: Sequence[Sizes] | None
    right: Sequence[list[int] | None]
    recorded: str = ""
    root: int | None = None
    splits: Sequence[tuple[list[int], list[int]]] = (([], []),)
    only: int | None = None


def _c10d(text: str) -> str:
    return f"c10d::{text}".replace("GROUP", _GROUP).replace("REDUCE", _REDUCE).replace("END", _END)


_EVEN = ([1, 2, 11, 12], [3, 4, 13, 14])
_UNEVEN = ([1, 11, 12, 13], [2, 3, 14])
_SPLITS = (([1, 2], [1, 3]), ([3, 1], [2, 1]))  # what each rank sends, and receives
_SUM = [12, 14, 16, 18]

_LISTS = "Tensor[][] output_tensors, Tensor[] input_tensors, GROUP"
_PARTS = "Tensor[] output_tensors, Tensor[][] input_tensors, GROUP"
_MANY = "Tensor[] outputs, Tensor[] inputs, GROUP"
_ONE = "Tensor output_tensor, Tensor input_tensor, GROUP"
_DEVICES = "Tensor tensor, GROUP, int[] device_ids"
_SPLIT = "int[] output_split_sizes, int[] input_split_sizes"
_ROOT = "int root_rank, int root_tensor"
_BYTE = T(7, 7, 0, 1, 1, dtype="unsigned char")

CALLS = (
    Call("all_reduce", _c10d("allreduce_(Tensor[] tensors, GROUP, REDUCE, Tensor? sparse, END)"),
         lambda x, _: (x, _OBJECT, _OBJECT, None, *_LATE), [(4,)], None, [_SUM, _SUM], "allreduce"),
    Call("all_reduce_coalesced",
         _c10d("allreduce_coalesced_(Tensor[] tensors, GROUP, REDUCE, END)"),
         lambda x, _: (x, _OBJECT, _OBJECT, *_LATE), [(2, 3)], None, [[*_SUM, 20]] * 2,
         "allreduce_coalesced"),
    Call("broadcast", _c10d(f"broadcast_(Tensor[] tensors, GROUP, {_ROOT}, END)"),
         lambda x, _: (x, _OBJECT, 1, 0, *_LATE), [(4,)], None, [[11, 12, 13, 14]] * 2,
         "broadcast", 1),
    Call("reduce", _c10d(f"reduce_(Tensor[] tensors, GROUP, REDUCE, {_ROOT}, END)"),
         lambda x, _: (x, _OBJECT, _OBJECT, 1, 0, *_LATE), [(4,)], None, [None, _SUM], "reduce", 1),
    Call("all_gather", _c10d(f"allgather_({_LISTS}, END)"),
         lambda x, y: ([y], x, _OBJECT, *_LATE), [(2,)], [(2, 2)], [[1, 2, 11, 12]] * 2,
         "all_gather"),
    Call("uneven all_gather", _c10d(f"allgather_({_LISTS}, END)"),
         lambda x, y: ([y], x, _OBJECT, *_LATE), [(1,), (2,)], [(1, 2)], [[1, 11, 12]] * 2,
         "all_gather"),
    Call("all_gather_into_tensor", _c10d(f"_allgather_base_({_ONE}, END)"),
         lambda x, y: (*y, *x, _OBJECT, *_LATE), [(2,)], [(4,)], [[1, 2, 11, 12]] * 2,
         "_allgather_base"),
    Call("all_gather_into_tensor_coalesced",
         _c10d(f"allgather_into_tensor_coalesced_({_MANY}, bool async_op=True)"),
         lambda x, y: (y, x, _OBJECT, False), [(1, 2)], [(2, 4)], [[1, 11, 2, 3, 12, 13]] * 2,
         "allgather_into_tensor_coalesced"),
    Call("reduce_scatter", _c10d(f"reduce_scatter_({_PARTS}, REDUCE, END)"),
         lambda x, y: (y, [x], _OBJECT, _OBJECT, *_LATE), [(2, 2)], [(2,)], [[12, 14], [16, 18]],
         "reduce_scatter"),
    Call("uneven reduce_scatter", _c10d(f"reduce_scatter_({_PARTS}, REDUCE, END)"),
         lambda x, y: (y, [x], _OBJECT, _OBJECT, *_LATE), [(1, 3)], [(1,), (3,)],
         [[12], [14, 16, 18]], "reduce_scatter"),
    Call("reduce_scatter_tensor", _c10d(f"_reduce_scatter_base_({_ONE}, REDUCE, END)"),
         lambda x, y: (*y, *x, _OBJECT, _OBJECT, *_LATE), [(4,)], [(2,)], [[12, 14], [16, 18]],
         "_reduce_scatter_base"),
    Call("reduce_scatter_tensor_coalesced",
         _c10d(f"reduce_scatter_tensor_coalesced_({_MANY}, REDUCE, END)"),
         lambda x, y: (y, x, _OBJECT, _OBJECT, *_LATE), [(2, 4)], [(1, 2)],
         [[12, 16, 18], [14, 20, 22]], "reduce_scatter_tensor_coalesced"),
    Call("all_to_all",
         _c10d("alltoall_(Tensor[] output_tensors, Tensor[] input_tensors, GROUP, END)"),
         lambda x, y: (y, x, _OBJECT, *_LATE), [(2, 2)], [(2, 2)], _EVEN, "all_to_all"),
    Call("all_to_all_single",
         _c10d(f"alltoall_base_(Tensor output, Tensor input, GROUP, {_SPLIT}, END)"),
         lambda x, y: (*y, *x, _OBJECT, [], [], *_LATE), [(4,)], [(4,)], _EVEN, "all_to_all"),
    Call("gather", _c10d(f"gather_({_LISTS}, int root_rank, END)"),
         lambda x, y: ([y] if y else [], x, _OBJECT, 1, *_LATE), [(2,)], [(), (2, 2)],
         [None, [1, 2, 11, 12]], "gather", 1),
    Call("scatter", _c10d(f"scatter_({_PARTS}, int root_rank, END)"),
         lambda x, y: (y, [x] if x else [], _OBJECT, 1, *_LATE), [(), (2, 2)], [(2,)],
         [[11, 12], [13, 14]], "scatter", 1),
    Call("barrier", _c10d(f"barrier({_DEVICES}, END)"),
         lambda x, _: (_BYTE, _OBJECT, [], *_LATE), [()], None, [None, None], "barrier"),
    Call("monitored_barrier", _c10d(f"monitored_barrier_({_DEVICES}, int timeout, bool wait_all)"),
         lambda x, _: (_BYTE, _OBJECT, [], 300000, False), [()], None, [None, None]),
    Call("send", _c10d("send(Tensor[] tensors, GROUP, int dst, int tag)"),
         lambda x, _: (x, _OBJECT, 1, 0), [(3,)], [()], [None, None], "send", 1, only=0),
    Call("recv", _c10d("recv_(Tensor[] tensors, GROUP, int src, int tag)"),
         lambda _, y: (y, _OBJECT, 0, 0), [()], [(3,)], [None, [1, 2, 3]], "recv", 0, only=1),
    Call("functional all_reduce",
         "_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name)",
         lambda x, _: (*x, "max", "0"), [(4,)], [(4,)], [[11, 12, 13, 14]] * 2),
    Call("functional product",
         "_c10d_functional::all_reduce_(Tensor(a!) input, str reduce_op, str group_name)",
         lambda x, _: (*x, "product", "0"), [(4,)], None, [[11, 24, 39, 56]] * 2),
    Call("functional all_gather_into_tensor",
         "_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, str group_name)",
         lambda x, _: (*x, 2, "0"), [(2,)], [(4,)], [[1, 2, 11, 12]] * 2),
    Call("functional reduce_scatter_tensor",
         "_c10d_functional::reduce_scatter_tensor(Tensor input, str reduce_op, int group_size,"
         " str group_name)",
         lambda x, _: (*x, "sum", 2, "0"), [(4,)], [(2,)], [[12, 14], [16, 18]]),
    Call("functional broadcast",
         "_c10d_functional::broadcast(Tensor input, int src, str group_name)",
         lambda x, _: (*x, 1, "0"), [(2,)], [(2,)], [[11, 12]] * 2),
)  # fmt: skip


def uneven_exchanges() -> tuple[Call, Call]:
    """Return uneven all_to_alls: rank 0 sends 1 and 2 elements, rank 1 sends 3 and 1."""
    base = next(call for call in CALLS if call.name == "all_to_all_single")
    sizes = ([(3,), (4,)], [(4,), (3,)])
    return (
        Call(
            "uneven all_to_all_single", base.schema, lambda x, y: (*y, *x, _OBJECT), *sizes,
            _UNEVEN, "all_to_allv", splits=_SPLITS,
        ),
        Call(
            "functional all_to_all_single",
            "_c10d_functional::all_to_all_single(Tensor input, SymInt[] output_split_sizes,"
            " SymInt[] input_split_sizes, str group_name)",
            lambda x, _: tuple(x), *sizes, _UNEVEN, splits=_SPLITS,
        ),
    )  # fmt: skip


EVERY = (*CALLS, *uneven_exchanges())


def write_job(folder: Path) -> dict[int, Call]:
    """Write the traces of both ranks; return the calls by the ids of their operators."""
    calls: dict[int, Call] = {}
    for rank in range(2):
        nodes: list[NodeSpec] = [_groups(), mark(4, "ProfilerStep#1")]
        storages = count(100)
        for place, call in enumerate(EVERY):
            if call.only in (None, rank):
                calls[10 * (place + 1)] = call
                nodes += _nodes(call, rank, 10 * (place + 1), storages)
        write_trace(folder / f"rank-{rank}.json", *nodes)
    return calls


def _groups() -> NodeSpec:
    group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}
    return node(3, "## process_group:init ##", 2, [json.dumps([{**group, "group_count": 1}])])


def _nodes(call: Call, rank: int, first: int, storages: count[int]) -> list[NodeSpec]:
    """Return the operator, and below it the backend's record, or after it a wait."""

    def tensors(sizes: Sequence[Sizes]) -> Tensors:
        ids = [(next(storages), size) for size in sizes[rank % len(sizes)]]
        return [T(id, id, 0, size, 4) for id, size in ids]

    given = tensors(call.given)
    taken = given if call.taken is None else tensors(call.taken)
    sent, received = call.splits[rank % len(call.splits)]
    arguments = list(call.arguments(given, taken))
    if sent and call.recorded:
        arguments += [received, sent, *_LATE]
    elif sent:
        arguments += [received, sent, "0"]
    name = call.schema.partition("(")[0]
    functional = name.startswith("_c10d_functional")
    outputs = taken if functional else [_OBJECT]
    found = [operator(first, name, 4, arguments, outputs, schema=f"{call.schema} -> ...")]
    if functional:
        schema = "_c10d_functional::wait_tensor(Tensor tensor) -> Tensor"
        wait = operator(first + 1, "_c10d_functional::wait_tensor", 4, taken, taken, schema=schema)
        return [*found, wait]
    if call.recorded:
        root = rank if call.root is None else call.root
        inputs = [given or taken, first, ("0", "default_pg"), root, call.recorded]
        found.append(
            node(
                first + 1,
                "record_param_comms",
                first,
                [*inputs, sent, received, 0, 1, 2],
                [taken or given],
            )
        )
    return found
