"""Recorded arguments in torch's types, and the places of tensors."""

from __future__ import annotations

import math

import pytest
import torch
from replay.recorded_calls import UNDEFINED, call, integers, run, tensor

from et_replay.execution_trace import Node, Opaque, Value
from et_replay.replay.arguments import BoundCall, bind
from et_replay.replay.operators import Unresolvable, resolve

FACTORY = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
EMPTY = (
    f"aten::empty.memory_format(SymInt[] size, *, {FACTORY}, MemoryFormat? memory_format=None)"
    " -> Tensor"
)
FULL = f"aten::full(SymInt[] size, Scalar fill_value, *, {FACTORY}) -> Tensor"
LAYER_NORM = (
    "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias,"
    " float eps) -> (Tensor, Tensor, Tensor)"
)
INDEX = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
CAT = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor"
MUL = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"


def bound(node: Node, device: str = "cpu") -> BoundCall:
    return bind(resolve(node), node, lambda name: torch.device(device))


def test_codes_become_torchs_types_and_devices_are_mapped() -> None:
    node = call(EMPTY, (2, 3), 15, 0, "cuda:3", False, 2)

    assert bound(node, "meta").kwargs == {
        "dtype": torch.bfloat16,
        "layout": torch.strided,
        "device": torch.device("meta"),
        "pin_memory": False,
        "memory_format": torch.channels_last,
    }


def test_what_equals_its_default_is_left_out() -> None:
    node = call(EMPTY, (2, 3), 6, None, None, None, None)

    assert (bound(node).args, bound(node).kwargs) == ([[2, 3]], {"dtype": torch.float32})


def test_an_absent_argument_without_default_is_passed() -> None:
    schema = (
        "aten::upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors)"
        " -> Tensor"
    )

    assert bound(call(schema, tensor(1, 1, 4), (8,), None)).args == [None, [8], None]


def test_an_unknown_code_is_named() -> None:
    with pytest.raises(Unresolvable, match=r"argument dtype has the unknown .*ScalarType.* 99"):
        bound(call(EMPTY, (2,), 99, None, None, None, None))


def test_tensors_have_their_places() -> None:
    node = call(
        "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)",
        *[tensor(2, 2)] * 3,
    )

    assert bound(node).singles == ((0, 0), (1, 1))
    assert bound(node).keyword_singles == (("out", 2),)


def test_flat_indices_count_the_tensors_of_lists() -> None:
    schema = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
    node = call(schema, (tensor(2), tensor(3)), (tensor(2), tensor(3)), 2)

    assert bound(node).lists == ((0, (0, 1)), (1, (2, 3)))
    assert bound(node).kwargs == {"alpha": 2}


def test_none_and_undefined_entries_keep_their_places_in_a_list() -> None:
    assert bound(call(INDEX, tensor(4, 4), (None, integers(2)))).lists == ((1, (-1, 1)),)
    assert bound(call(INDEX, tensor(4, 4), (UNDEFINED, integers(2)))).lists == ((1, (-1, 2)),)


def test_undefined_tensors_become_none() -> None:
    node = call(LAYER_NORM, tensor(2, 4), (4,), UNDEFINED, UNDEFINED, 0.5)

    assert bound(node).args == [None, [4], None, None, 0.5]
    assert bound(node).singles == ((0, 0),)


def test_an_epsilon_of_zero_is_replaced_and_noted() -> None:
    node = call(LAYER_NORM, tensor(2, 4), (4,), None, None, 0.0)

    assert bound(node).args[4] == 1e-5
    assert bound(node).notes == (
        "eps was recorded as 0.0, as a trace keeps six decimals, and is replayed as 1e-05",
    )


def test_layer_norm_of_a_constant_with_a_lost_epsilon_has_finite_results() -> None:
    node = call(LAYER_NORM, tensor(2, 1), (1,), None, None, 0.0)

    assert all(result.isfinite().all() for result in run(node))


def test_a_list_of_fixed_length_takes_a_single_integer() -> None:
    schema = (
        "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0,"
        " int[2] dilation=1, bool ceil_mode=False) -> Tensor"
    )

    assert bound(call(schema, tensor(1, 1, 4, 4), 2, (), 0, 1, False)).args[1] == [2, 2]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_scalars_are_passed_on(value: float) -> None:
    assert bound(call(FULL, (2,), value, None, None, None, None)).args == [[2], value]


def test_a_string_that_reads_as_a_number_stays_a_string() -> None:
    schema = "aten::gelu(Tensor self, *, str approximate='none') -> Tensor"

    assert bound(call(schema, tensor(2), "inf")).kwargs == {"approximate": "inf"}


def test_an_optional_generator_becomes_none() -> None:
    schema = (
        "aten::normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None)"
        " -> Tensor(a!)"
    )
    node = call(schema, tensor(2), 0.0, 1.0, Opaque("Generator"))

    assert bound(node).kwargs == {}


def test_a_complex_number_that_no_trace_holds_is_the_imaginary_unit_and_said_so() -> None:
    call_of_full = bound(call(FULL, (2,), Opaque("ComplexDouble"), None, None, None, None))

    assert call_of_full.args == [[2], 1j]
    assert call_of_full.notes == (
        "fill_value was a complex number, which no trace holds: it is 1j",
    )


def test_an_object_that_no_trace_holds_is_named() -> None:
    with pytest.raises(Unresolvable, match="argument fill_value is a Stream, which a trace"):
        bound(call(FULL, (2,), Opaque("Stream"), None, None, None, None))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param(
            call(MUL, Opaque("damaged Tensor(float)"), tensor(2)),
            "argument self should be a tensor, the trace has a damaged Tensor(float)",
            id="tensor",
        ),
        pytest.param(
            call(FULL, (2,), Opaque("damaged Int"), None, None, None, None),
            "argument fill_value should be of type number, the trace has a damaged Int",
            id="number",
        ),
        pytest.param(
            call(CAT, (tensor(2), Opaque("damaged Tensor(float)")), 0),
            "argument tensors is no flat list of tensors: it holds a damaged Tensor(float)",
            id="list",
        ),
        pytest.param(
            call(CAT, (tensor(2),), (Opaque("damaged Int"), tensor(2))),
            "argument dim should be of type int, the trace has a list of 2",
            id="list for a number",
        ),
    ],
)
def test_what_is_damaged_is_told_in_words(node: Node, reason: str) -> None:
    with pytest.raises(Unresolvable) as caught:
        bound(node)

    assert caught.value.reason == reason


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**25])
def test_an_integer_that_64_bits_do_not_hold_is_refused(value: int) -> None:
    reason = "fill_value should be of type number, the trace has an integer of more than 64 bits"

    with pytest.raises(Unresolvable, match=reason):
        bound(call(FULL, (2,), value, None, None, None, None))


@pytest.mark.parametrize("value", [-(2**63), 2**64 - 1])
def test_an_integer_that_64_bits_hold_is_passed_on(value: int) -> None:
    assert bound(call(FULL, (2,), value, None, None, None, None)).args == [[2], value]


def test_a_storage_is_that_of_the_output() -> None:
    schema = (
        "aten::set_.source_Storage_storage_offset(Tensor(a!) self, Storage source,"
        " SymInt storage_offset, SymInt[] size, SymInt[] stride=[]) -> Tensor(a!)"
    )
    node = call(schema, tensor(0), Opaque("Storage"), 0, (4,), (1,), outputs=[tensor(4)])

    assert bound(node).storages == ((1, 0),)
    assert bound(node).args == [None, None, 0, [4], [1]]


def test_nested_lists_of_tensors_are_refused() -> None:
    with pytest.raises(
        Unresolvable, match="tensors is no flat list of tensors: it holds a list of 2"
    ):
        bound(call(CAT, ((tensor(2), tensor(2)),), 0))


def test_inputs_that_were_not_recorded_are_counted() -> None:
    with pytest.raises(Unresolvable, match="0 of its 2 arguments were recorded"):
        bound(call(MUL))


def test_a_number_recorded_as_a_tensor_does_not_decide_the_type() -> None:
    # Python's `loss * 0.5` records a double without dimensions; its float result tells.
    loss, half = tensor(), tensor(dtype="double", itemsize=8)

    assert run(call(MUL, loss, half, outputs=[tensor()])).dtype is torch.float32
    assert run(call(MUL, loss, half, outputs=[half])).dtype is torch.float64


@pytest.mark.parametrize(
    ("value", "expected"), [(True, 1), (2.0, 2)], ids=["bool for int", "float for int"]
)
def test_numbers_are_converted_to_the_schemas_type(value: Value, expected: int) -> None:
    dim = bound(
        call(
            "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            tensor(2, 2, 2),
            value,
            None,
        )
    ).args[1]

    assert (dim, type(dim)) == (expected, int)


FOREACH = {
    "aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()": (1.0,),
    "aten::_foreach_add.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]": (1.0,),
    "aten::_foreach_addcdiv_.ScalarList(Tensor(a!)[] self, Tensor[] tensor1, Tensor[] tensor2,"
    " Scalar[] scalars) -> ()": ((tensor(2), tensor(3)), (tensor(2), tensor(3)), (0.5, 0.25)),
}


@pytest.mark.parametrize(("schema", "others"), FOREACH.items())
def test_foreach_operators_run(schema: str, others: tuple[Value, ...]) -> None:
    node = call(schema, (tensor(2), tensor(3)), *others)

    result = run(node)

    assert result is None or [tuple(each.shape) for each in result] == [(2,), (3,)]
