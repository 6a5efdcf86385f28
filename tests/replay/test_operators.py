"""From recorded schemas to overloads, whatever the text holds, and which devices have kernels."""

from __future__ import annotations

import pytest
import torch
from replay.recorded_calls import call, integers, tensor

from et_replay.execution_trace import Node, TensorRef, Value
from et_replay.program.argument_names import argument_names
from et_replay.replay.operators import Unresolvable, has_kernel, is_data_dependent, resolve

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        (ADD, ("self", "other", "alpha")),
        ("aten::f(SymInt[] size, int[1]? dim) -> Tensor", ("size", "dim")),
        (
            'aten::pad(Tensor self, SymInt[] pad, str mode="con,(stant") -> ()',
            ("self", "pad", "mode"),
        ),
        ("aten::g(float eps=1.0000000000000001e-05) -> ()", ("eps",)),
        ("aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", ("self", "dim")),
        (
            "aten::bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> ()",
            ("self", "mat2", "out"),
        ),
        (
            "aten::pool(Tensor self, int[2] stride=[1, 1], int b=0) -> (Tensor values, Tensor i)",
            ("self", "stride", "b"),
        ),
        ("aten::f(Tensor(a!)[] self, Tensor?[] indices) -> ()", ("self", "indices")),
        (
            "c10d::x(Tensor[][] o, __torch__.torch.classes.c10d.ProcessGroup group) -> ()",
            ("o", "group"),
        ),
        ("aten::none() -> ()", ()),
        ("", ()),
    ],
)
def test_argument_names_are_read_from_every_form_of_schema(
    schema: str, names: tuple[str, ...]
) -> None:
    assert argument_names(schema) == names


@pytest.mark.parametrize(
    ("schema", "inputs", "expected"),
    [
        (ADD, (tensor(2), tensor(2), 1), "aten::add.Tensor"),
        ("aten::relu(Tensor self) -> Tensor", (tensor(2),), "aten::relu"),
        (
            "aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()",
            ((tensor(2),), 1.0),
            "aten::_foreach_add_.Scalar",
        ),
    ],
)
def test_the_recorded_overload_is_found(
    schema: str, inputs: tuple[Value, ...], expected: str
) -> None:
    assert resolve(call(schema, *inputs)).name() == expected


def test_a_renamed_overload_is_found_by_its_argument_names() -> None:
    node = call(
        "aten::add.Renamed(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        tensor(2),
        tensor(2),
        1,
    )

    assert resolve(node) is torch.ops.aten.add.Tensor


def test_an_absent_argument_that_torch_here_lacks_does_not_matter() -> None:
    schema = "aten::relu(Tensor self, int? vanished=None) -> Tensor"

    assert resolve(call(schema, tensor(2), None)) is torch.ops.aten.relu.default


def test_renamed_arguments_go_by_position() -> None:
    schema = "aten::mm(Tensor left, Tensor right) -> Tensor"

    assert resolve(call(schema, tensor(2, 2), tensor(2, 2))) is torch.ops.aten.mm.default


@pytest.mark.parametrize(
    ("other", "expected"),
    [(tensor(2), torch.ops.aten.add.Tensor), (1.5, torch.ops.aten.add.Scalar)],
)
def test_without_a_schema_the_arguments_decide(other: TensorRef | float, expected: object) -> None:
    node = Node(id=3, name="aten::add", parent=1, inputs=(tensor(2), other, 1))

    assert resolve(node) is expected


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            "fbgemm::permute(Tensor x) -> Tensor",
            "torch has no operator fbgemm::permute; --import the module that registers it",
        ),
        ("aten::no_such_thing(Tensor x) -> Tensor", "has no operator aten::no_such_thing"),
        (
            "aten::mm.odd(Tensor self, int n) -> Tensor",
            "has no overload of aten.mm for aten::mm.odd",
        ),
    ],
)
def test_what_torch_lacks_is_named(schema: str, reason: str) -> None:
    inputs = (tensor(2), 1) if "int n" in schema else (tensor(2),)

    with pytest.raises(Unresolvable, match=reason) as caught:
        resolve(call(schema, *inputs))

    assert caught.value.reason in str(caught.value)


@pytest.mark.parametrize(
    ("overload", "device_type", "expected"),
    [
        (torch.ops.aten.mm.default, "cpu", True),
        (torch.ops.aten.mm.default, "meta", True),
        (torch.ops.aten.matmul.default, "cpu", True),
        (torch.ops.aten.matmul.default, "meta", True),
        (torch.ops.aten.cudnn_convolution.default, "cpu", False),
        (torch.ops.aten.cudnn_convolution.default, "meta", False),
        (torch.ops.aten._scaled_dot_product_cudnn_attention.default, "cpu", False),
        (torch.ops.aten.masked_select.default, "meta", False),
        (torch.ops.aten.nonzero_numpy.default, "cpu", True),
    ],
)
def test_kernels_are_found_where_torch_has_them(
    overload: torch._ops.OpOverload, device_type: str, expected: bool
) -> None:
    assert has_kernel(overload, device_type) is expected


INDEX = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
REPEAT = (
    "aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *,"
    " SymInt? output_size=None) -> Tensor"
)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (call("aten::nonzero(Tensor self) -> Tensor", tensor(3)), True),
        (call(INDEX, tensor(3), (tensor(3, dtype="bool"),)), True),
        (call(INDEX, tensor(3), (integers(3),)), False),
        (call(REPEAT, tensor(3), integers(3), 0, None), True),
        (call(REPEAT, tensor(3), integers(3), 0, 9), False),
        (call("aten::one_hot(Tensor self, int num_classes=-1) -> Tensor", integers(3), -1), True),
        (call("aten::one_hot(Tensor self, int num_classes=-1) -> Tensor", integers(3), 5), False),
        (call("aten::where(Tensor condition) -> Tensor[]", tensor(3)), True),
        (call(ADD, tensor(3), tensor(3), 1), False),
    ],
)
def test_results_that_depend_on_data_are_known(node: Node, expected: bool) -> None:
    assert is_data_dependent(resolve(node), node) is expected


@pytest.mark.parametrize(
    "operator", [torch.ops.aten._values.default, torch.ops.aten.int_repr.default]
)
def test_kernels_for_sparse_or_quantised_tensors_alone_are_kernels(
    operator: torch._ops.OpOverload,
) -> None:
    assert has_kernel(operator, "cpu")
    assert not has_kernel(torch.ops.aten.cudnn_convolution.default, "cpu")


def test_operators_that_torch_defines_on_demand_are_found() -> None:
    schema = (
        "quantized_decomposed::quantize_per_tensor(Tensor input, float scale, int zero_point,"
        " int quant_min, int quant_max, ScalarType dtype) -> Tensor"
    )

    found = resolve(call(schema, tensor(2), 0.5, 0, -128, 127, 1))

    assert str(found) == "quantized_decomposed.quantize_per_tensor.default"
