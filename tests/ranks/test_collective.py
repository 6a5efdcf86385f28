"""Calls of torch.distributed: read of every form in which traces hold them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_builder import NodeSpec, T, Typed, node, operator, write_trace

from et_replay.formats import open_trace
from et_replay.ranks.collective import Collective, read_collectives
from et_replay.ranks.groups import process_groups

OBJECT = Typed("<Object>", "Object")
GROUP = "__torch__.torch.classes.c10d.ProcessGroup process_group"
END = "bool async_op=True, int timeout=-1"
FOUR, EIGHT = T(5, 6, 0, 4, 4), T(7, 8, 0, 8, 4)
GROUPS = [
    {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4},
    {"pg_name": "1", "pg_desc": "pair", "ranks": [2, 3], "group_size": 2},
]


def calls_of(
    tmp_path: Path, *nodes: NodeSpec, schema: str = "1.1.1-chakra.0.0.4"
) -> list[Collective]:
    listing = node(3, "## process_group:init ##", 2, [json.dumps(GROUPS)])
    trace = open_trace(write_trace(tmp_path / "t.json", listing, *nodes, schema=schema))
    return read_collectives(trace, process_groups(trace, 2))


def call_of(tmp_path: Path, *nodes: NodeSpec) -> Collective:
    (call,) = calls_of(tmp_path, *nodes)
    return call


def c10d(id: int, text: str, *inputs: object, parent: int = 2) -> NodeSpec:
    """Return a call on a group, with the arguments of its schema between the brackets."""
    name, _, arguments = text.partition("(")
    schema = f"c10d::{name}({arguments.replace('GROUP', GROUP).replace('END', END)} -> ..."
    return operator(id, f"c10d::{name}", parent, inputs, schema=schema)


def record(id: int, parent: int, *inputs: object, **attributes: object) -> NodeSpec:
    return node(id, "record_param_comms", parent, inputs, **attributes)


def test_a_call_and_what_nccl_records_of_it_are_one(tmp_path: Path) -> None:
    call = call_of(
        tmp_path,
        c10d(10, "broadcast_(Tensor[] tensors, GROUP, int root_rank, int root_tensor, END)",
             [FOUR], OBJECT, 1, 0, False, -1),
        record(11, 10, [FOUR], [33, False], ("1", "pair"), 1, "broadcast", [], [], 2, 1, 2, False),
    )  # fmt: skip
    assert (call.kind, call.node_id, call.position) == ("broadcast", 10, 3)
    assert (call.group, call.group_told) == (1, True)
    assert (call.sequence, call.root, call.peer) == (33, 1, None)
    assert (call.dtype, call.element_size) == ("float", 4)
    assert (call.in_elements, call.out_elements) == (4, 4)
    assert call.asynchronous is False


def test_the_attribute_of_being_asynchronous_goes_before_the_argument(tmp_path: Path) -> None:
    call = call_of(
        tmp_path,
        c10d(
            10, "barrier(Tensor tensor, GROUP, int[] device_ids, END)", FOUR, OBJECT, [], True, -1
        ),
        record(11, 10, 7, ("0", ""), 2, "barrier", [], [], 0, 1, 4, is_asynchronized_op="False"),
    )
    assert call.kind == "barrier"
    assert call.asynchronous is False
    assert (call.in_elements, call.out_elements, call.dtype) == (0, 0, "")


@pytest.mark.parametrize(
    ("text", "inputs", "kind", "sizes"),
    [
        (
            "allgather_(Tensor[][] output_tensors, Tensor[] input_tensors, GROUP, END)",
            ([[FOUR, FOUR]], [FOUR], OBJECT, True, -1),
            "all_gather",
            ((4,), (4, 4)),
        ),
        (
            "reduce_scatter_(Tensor[] output_tensors, Tensor[][] input_tensors, GROUP, END)",
            ([FOUR], [[FOUR, EIGHT]], OBJECT, True, -1),
            "reduce_scatter",
            ((4, 8), (4,)),
        ),
        (
            "alltoall_(Tensor[] output_tensors, Tensor[] input_tensors, GROUP, END)",
            ([FOUR, FOUR], [FOUR, EIGHT], OBJECT, True, -1),
            "all_to_all",
            ((4, 8), (4, 4)),
        ),
        (
            "allgather_into_tensor_coalesced_(Tensor[] outputs, Tensor[] inputs, GROUP, END)",
            ([EIGHT, EIGHT], [FOUR, FOUR], OBJECT, True, -1),
            "all_gather_into_tensor_coalesced",
            ((4, 4), (8, 8)),
        ),
        (
            "allreduce_coalesced_(Tensor[] tensors, GROUP, END)",
            ([FOUR, EIGHT], OBJECT, True, -1),
            "all_reduce_coalesced",
            ((4, 8), (4, 8)),
        ),
    ],
)
def test_lists_keep_the_size_of_each_tensor(
    tmp_path: Path,
    text: str,
    inputs: tuple[object, ...],
    kind: str,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    call = call_of(tmp_path, c10d(10, text, *inputs))
    assert call.kind == kind
    assert (call.in_sizes, call.out_sizes) == sizes
    assert (call.in_elements, call.out_elements) == (sum(sizes[0]), sum(sizes[1]))


def test_gather_has_a_list_on_the_root_alone(tmp_path: Path) -> None:
    text = "gather_(Tensor[][] output_tensors, Tensor[] input_tensors, GROUP, int root_rank, END)"
    root = c10d(10, text, [[FOUR, FOUR]], [FOUR], OBJECT, 0, True, -1)
    other = c10d(11, text, [], [FOUR], OBJECT, 0, True, -1)
    first, second = calls_of(tmp_path, root, other)
    assert (first.root, first.in_sizes, first.out_sizes) == (0, (4,), (4, 4))
    assert (second.root, second.in_sizes, second.out_sizes) == (0, (4,), ())


def test_splits_in_rows_become_elements(tmp_path: Path) -> None:
    text = (
        "alltoall_base_(Tensor output, Tensor input, GROUP, int[] output_split_sizes,"
        " int[] input_split_sizes, END)"
    )
    given, taken = T(5, 6, 0, 12, 4, shape=(3, 4)), T(7, 8, 0, 20, 4, shape=(5, 4))
    call = call_of(tmp_path, c10d(10, text, taken, given, OBJECT, [4, 1], [1, 2], True, -1))
    assert (call.in_splits, call.out_splits) == ((4, 8), (16, 4))
    assert call.group == 1  # of the two, the one of two ranks


def test_splits_that_do_not_add_up_to_the_rows_are_kept_as_they_are(tmp_path: Path) -> None:
    text = (
        "alltoall_base_(Tensor output, Tensor input, GROUP, int[] output_split_sizes,"
        " int[] input_split_sizes, END)"
    )
    given, taken = T(5, 6, 0, 5, 4), T(7, 8, 0, 1024, 4, shape=(32, 32))
    call = call_of(tmp_path, c10d(10, text, taken, given, OBJECT, [28, 7], [5, 3], True, -1))
    assert (call.in_splits, call.out_splits) == ((5, 3), (896, 224))


def test_sends_and_receives_name_the_peer_but_from_any_source(tmp_path: Path) -> None:
    send, receive, of_any = calls_of(
        tmp_path,
        c10d(10, "send(Tensor[] tensors, GROUP, int dst, int tag)", [FOUR], OBJECT, 3, 7),
        c10d(11, "recv_(Tensor[] tensors, GROUP, int src, int tag)", [FOUR], OBJECT, 1, 0),
        c10d(12, "recv_any_source_(Tensor[] tensors, GROUP, int tag)", [FOUR], OBJECT, 5),
    )
    assert (send.kind, send.peer, send.tag) == ("send", 3, 7)
    assert (send.in_elements, send.out_elements) == (4, 0)
    assert (receive.kind, receive.peer) == ("recv", 1)
    assert (receive.in_elements, receive.out_elements) == (0, 4)
    assert (of_any.kind, of_any.peer, of_any.tag) == ("recv", None, 5)


def test_a_functional_collective_stands_for_the_forms_below_it(tmp_path: Path) -> None:
    schema = (
        "_c10d_functional::all_gather_into_tensor(Tensor input, int group_size, Any group_name)"
        " -> Tensor"
    )
    call, wait = calls_of(
        tmp_path,
        operator(9, "_c10d_functional_autograd::all_gather_into_tensor", 2, [FOUR, 2, "1"], [EIGHT],
                 schema=schema.replace("functional", "functional_autograd")),
        operator(10, "_c10d_functional::all_gather_into_tensor", 9, [FOUR, 2, "1"], [EIGHT],
                 schema=schema),
        c10d(11, "allgather_into_tensor_coalesced_(Tensor[] outputs, Tensor[] inputs, GROUP, END)",
             [EIGHT], [FOUR], OBJECT, True, -1, parent=10),
        operator(12, "_c10d_functional::_wrap_tensor_autograd", 2, [EIGHT], [EIGHT]),
        operator(13, "_c10d_functional::wait_tensor", 2, [EIGHT], [EIGHT]),
        record(14, 13, 33, ("", ""), 0, "wait", [], [], -1, -1, 1),
    )  # fmt: skip
    assert (call.kind, call.node_id, call.group) == ("all_gather_into_tensor", 9, 1)
    assert (call.in_elements, call.out_elements, call.in_sizes) == (4, 8, ())
    assert call.asynchronous is True
    assert (wait.kind, wait.node_id, wait.sequence, wait.group) == ("wait", 13, 33, -1)


def test_a_functional_reduction_is_told(tmp_path: Path) -> None:
    schema = "_c10d_functional::all_reduce(Tensor input, str reduce_op, Any group_name) -> Tensor"
    call = call_of(
        tmp_path,
        operator(10, "_c10d_functional::all_reduce", 2, [FOUR, "avg", "0"], [FOUR], schema=schema),
    )
    assert (call.kind, call.reduction, call.group) == ("all_reduce", "avg", 0)


def test_older_functional_collectives_list_the_ranks(tmp_path: Path) -> None:
    schema = (
        "c10d_functional::all_reduce(Tensor self, str reduceOp, str tag, int[] ranks,"
        " int group_size) -> Tensor"
    )
    inputs = [FOUR, "sum", "", [2, 3], 2]
    call = call_of(
        tmp_path, operator(10, "c10d_functional::all_reduce", 2, inputs, [FOUR], schema=schema)
    )
    assert (call.kind, call.reduction, call.group) == ("all_reduce", "sum", 1)


def test_a_call_left_below_another_of_its_form_is_its_own(tmp_path: Path) -> None:
    send, receive = calls_of(
        tmp_path,
        c10d(10, "send(Tensor[] tensors, GROUP, int dst, int tag)", [FOUR], OBJECT, 3, 7),
        c10d(
            11, "recv_(Tensor[] tensors, GROUP, int src, int tag)", [FOUR], OBJECT, 3, 0, parent=10
        ),
    )
    assert (send.kind, receive.kind) == ("send", "recv")


def test_parts_that_nccl_records_are_no_calls_but_tell_the_group(tmp_path: Path) -> None:
    call = call_of(
        tmp_path,
        c10d(10, "allgather_(Tensor[][] output_tensors, Tensor[] input_tensors, GROUP, END)",
             [[FOUR, EIGHT]], [FOUR], OBJECT, True, -1),
        record(11, 10, [FOUR], 7, ("1", ""), 0, "_broadcast_oop", [], [], 2, 1, 2),
        record(12, 10, [EIGHT], 8, ("1", ""), 1, "_broadcast_oop", [], [], 2, 1, 2),
    )  # fmt: skip
    assert (call.kind, call.group, call.out_sizes) == ("all_gather", 1, (4, 8))


@pytest.mark.parametrize(
    ("name", "tensors", "kind"),
    [
        ("allreduce", [FOUR], "all_reduce"),
        ("_allgather_base", [FOUR], "all_gather_into_tensor"),
        ("_reduce_scatter_base", [FOUR], "reduce_scatter_tensor"),
        ("all_to_allv", [FOUR], "all_to_all_single"),
        ("all_to_all", [FOUR], "all_to_all_single"),
        ("all_to_all", [FOUR, FOUR], "all_to_all"),
        ("_broadcast_oop", [FOUR], "broadcast"),
    ],
)
def test_a_record_alone_is_a_call(
    tmp_path: Path, name: str, tensors: list[Typed], kind: str
) -> None:
    call = call_of(tmp_path, record(10, 2, tensors, 7, ("1", ""), 1, name, [], [], 2, 1, 2))
    assert (call.kind, call.group, call.sequence) == (kind, 1, 7)


def test_the_flat_layout_of_older_traces_is_read(tmp_path: Path) -> None:
    flat = record(10, 2, [FOUR], 7, 94012888, 2, "all_to_allv", [1, 3], [2, 2])
    (call,) = calls_of(tmp_path, flat, schema="1.0.1")
    assert (call.kind, call.sequence, call.in_splits) == ("all_to_all_single", 7, (1, 3))


def test_a_record_without_tensors_has_the_sizes_of_its_attributes(tmp_path: Path) -> None:
    told = {"in_msg_nelems": 4, "out_msg_nelems": 16, "pg_name": "0"}
    call = call_of(tmp_path, record(10, 2, collective_name="_allgather_base", **told))
    assert (call.kind, call.in_elements, call.out_elements) == ("all_gather_into_tensor", 4, 16)


def test_where_nothing_names_the_group_the_first_that_fits_is_taken(tmp_path: Path) -> None:
    text = "allreduce_(Tensor[] tensors, GROUP, END)"
    call = call_of(tmp_path, c10d(10, text, [FOUR], OBJECT, True, -1))
    assert (call.group, call.group_told) == (0, False)


def test_sizes_for_more_ranks_than_there_are_tell_no_group(tmp_path: Path) -> None:
    text = "_allgather_base_(Tensor output_tensor, Tensor input_tensor, GROUP, END)"
    wrong, larger = T(5, 6, 0, 20, 4), T(7, 8, 0, 12, 4)
    of_five, of_three = calls_of(
        tmp_path,
        c10d(10, text, wrong, FOUR, OBJECT, True, -1),
        c10d(11, text, larger, FOUR, OBJECT, True, -1),
    )
    assert (of_five.group, of_five.group_told, of_five.candidates) == (0, False, (0, 1))
    assert of_three.group == -1  # a group of three may be one that the trace does not list


def test_the_oldest_records_name_no_group(tmp_path: Path) -> None:
    call = call_of(tmp_path, record(10, 2, [FOUR], 7, 2, "broadcast", [], []))
    assert (call.kind, call.sequence, call.root) == ("broadcast", 7, 2)
    assert (call.group, call.group_told) == (0, True)  # of two, that of more than two ranks


def test_a_group_may_be_a_name_alone(tmp_path: Path) -> None:
    call = call_of(tmp_path, record(10, 2, [], 7, "1", 0, "scatter", [], [], 2))
    assert (call.kind, call.group, call.sequence) == ("scatter", 1, 7)
