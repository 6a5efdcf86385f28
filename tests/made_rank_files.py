"""Ranks of a made-up job in, their execution traces as PyTorch, NCCL and gloo write them out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from made_ranks import MadeCall, MadeRank
from trace_builder import NodeSpec, T, Typed, node, operator, trace

_GROUP = "__torch__.torch.classes.c10d.ProcessGroup process_group"
_OPERATION = "__torch__.torch.classes.c10d.ReduceOp reduce_op"
_END = "bool async_op=True, int timeout=-1"
_BASE = "Tensor output_tensor, Tensor input_tensor"
_FORMS = {
    "all_reduce": (
        "allreduce",
        f"allreduce_(Tensor[] tensors, {_GROUP}, {_OPERATION}, Tensor? sparse_indices, {_END})",
    ),
    "broadcast": (
        "broadcast",
        f"broadcast_(Tensor[] tensors, {_GROUP}, int root_rank, int root_tensor, {_END})",
    ),
    "all_gather": (
        "all_gather",
        f"allgather_(Tensor[][] output_tensors, Tensor[] input_tensors, {_GROUP}, {_END})",
    ),
    "all_gather_into_tensor": ("_allgather_base", f"_allgather_base_({_BASE}, {_GROUP}, {_END})"),
    "reduce_scatter_tensor": (
        "_reduce_scatter_base",
        f"_reduce_scatter_base_({_BASE}, {_GROUP}, {_OPERATION}, {_END})",
    ),
    "all_to_all_single": (
        "all_to_allv",
        f"alltoall_base_(Tensor output, Tensor input, {_GROUP}, int[] output_split_sizes,"
        f" int[] input_split_sizes, {_END})",
    ),
    "send": ("send", f"send(Tensor[] tensors, {_GROUP}, int dst, int tag)"),
    "recv": ("recv", f"recv_(Tensor[] tensors, {_GROUP}, int src, int tag)"),
    "barrier": ("barrier", f"barrier(Tensor tensor, {_GROUP}, int[] device_ids, {_END})"),
}
"""Of each kind the name in a record, and the schema of the call on a group."""
_OBJECT = Typed("<Object>", "Object")
_ITEM_SIZES = {"float": 4, "long int": 8, "c10::BFloat16": 2}
_ROOTED = ("broadcast", "send", "recv")


def nodes_of(made: MadeRank, first_id: int = 10, backend: str = "nccl") -> Iterator[NodeSpec]:
    """Yield the nodes of a rank's calls; gloo does not write what NCCL records of them."""
    for k, call in enumerate(made.calls):
        recorded, schema = _FORMS[call.kind]
        ranks = made.groups[call.group]
        given, taken = (_tensors(side, call) for side in (call.given, call.taken))
        name = str(list(made.groups).index(call.group))
        place = (ranks[0], ranks[1] - ranks[0] if len(ranks) > 1 else 1, len(ranks), True)
        caller = call.rank if call.kind in _ROOTED else ranks.index(made.rank)
        splits = [list(side) for side in call.splits]
        operation = f"c10d::{schema} -> ..."
        yield operator(
            first_id + 2 * k,
            operation.partition("(")[0],
            2,
            _arguments(call, given, taken),
            schema=operation,
        )
        if backend == "gloo":
            continue
        yield node(
            first_id + 2 * k + 1,
            "record_param_comms",
            first_id + 2 * k,
            [given or taken, (k, False), (name, call.group), caller, recorded, *splits, *place],
            [taken or given],
        )


def _arguments(call: MadeCall, given: list[Typed], taken: list[Typed]) -> tuple[object, ...]:
    """Return what `_FORMS` says that a call on a group takes."""
    end = (True, -1)
    if call.kind == "all_reduce":
        return (given, _OBJECT, _OBJECT, None, *end)
    if call.kind == "broadcast":
        return (given, _OBJECT, call.rank, 0, *end)
    if call.kind == "all_gather":
        return ([taken], given, _OBJECT, *end)
    if call.kind == "barrier":
        return (T(5, 6, 0, 1, 1, dtype="unsigned char"), _OBJECT, [], *end)
    if call.kind in ("send", "recv"):
        return (given or taken, _OBJECT, call.rank, 0)
    if call.kind == "all_to_all_single":
        in_splits, out_splits = (list(side) for side in call.splits)
        return (*taken, *given, _OBJECT, out_splits, in_splits, *end)
    return (*taken, *given, _OBJECT, *([_OBJECT] if "reduce" in call.kind else []), *end)


def _tensors(sizes: Sequence[int], call: MadeCall) -> list[Typed]:
    itemsize = _ITEM_SIZES[call.dtype]
    return [T(5, 6, 0, size, itemsize, dtype=call.dtype) for size in sizes]


def list_of_groups(made: MadeRank) -> NodeSpec:
    """Return the node that lists the process groups of a rank."""
    groups = [
        {
            "pg_name": str(k),
            "pg_desc": "default_pg" if name == "world" else name,
            "backend_config": "cuda:nccl",
            "ranks": [] if len(ranks) == made.world_size else list(ranks),
            "group_size": len(ranks),
            "group_count": len(made.groups),
        }
        for k, (name, ranks) in enumerate(made.groups.items())
    ]
    return node(3, "## process_group:init ##", 2, [json.dumps(groups)])


def write_job(
    folder: Path, ranks: Iterable[MadeRank], nodes: int = 0, backend: str = "nccl"
) -> Path:
    """Write a file for each rank, with operators up to so many `nodes` before the calls."""
    folder.mkdir(exist_ok=True)
    ranks = list(ranks)
    count = max(nodes - 4 - 2 * max(len(made.calls) for made in ranks), 0)
    operators = [
        operator(10 + k, "aten::mul", 2, [T(5, 6, 0, 64, 4)] * 2, [T(7, 8, 0, 64, 4)])
        for k in range(count)
    ]
    texts = [json.dumps(each) + "," for each in trace(*operators, roots=False)["nodes"]]
    head = '{"schema": "1.1.1-chakra.0.0.4", "nodes": ['
    begin = gzip.compress((head + "".join(texts)).encode(), 1)
    for made in ranks:
        specs = (list_of_groups(made), *nodes_of(made, 10 + count, backend))
        text = ",".join(json.dumps(each) for each in trace(*specs)["nodes"])
        file = folder / f"rank-{made.rank}.json.gz"
        file.write_bytes(begin + gzip.compress((text + "]}").encode(), 1))
    return folder
