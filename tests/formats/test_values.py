"""Recorded values: every type string that the observer writes, and those it should not."""

from __future__ import annotations

import json
import math

import pytest
from trace_builder import FLAT, LATEST, NONE, UNDEFINED, T, Typed, node, operator, trace

from et_replay.errors import TraceError
from et_replay.execution_trace import Opaque, TensorRef, tensors

DTYPES = (
    "unsigned char,signed char,short int,int,long int,long,c10::Half,float,double,"
    "c10::complex<c10::Half>,c10::complex<float>,c10::complex<double>,bool,c10::quint8,"
    "c10::BFloat16,c10::bits8,c10::Float8_e5m2,c10::Float8_e4m3fn,c10::Float8_e5m2fnuz,"
    "c10::Float8_e4m3fnuz,short unsigned int,unsigned int,long unsigned int,"
    "c10::dummy_uint1_7_t<1>,c10::dummy_int1_7_t<4>,c10::Float8_e8m0fnu,c10::Float4_e2m1fn_x2,"
    "c10::Foo"
).split(",")


@pytest.fixture
def read_values(read_nodes):
    """Return the inputs that these values are read as."""

    def read(*values, schema=LATEST):
        return read_nodes(operator(5, "aten::op", 2, values), schema=schema).node(2).inputs

    return read


@pytest.fixture
def read_inputs(read_text):
    """Return what the columns of a node's inputs, given as they stand in a file, are read as."""

    def read(columns, **flags):
        content = trace(operator(5, "aten::op", 2))
        content["nodes"][1]["inputs"] = columns
        return read_text(json.dumps(content), **flags).node(2).inputs

    return read


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_is_the_name_between_the_parentheses(read_values, dtype):
    (tensor,) = read_values(T(3, 4, 0, 6, 0, dtype=dtype))

    assert tensor.dtype == dtype
    assert tensor.defined


def test_undefined_tensors_are_tensors_that_are_not_defined(read_values):
    single, several = read_values(UNDEFINED, [T(3, 4, 0, 6, 4), UNDEFINED, T(7, 8, 0, 6, 4)])

    undefined = TensorRef(0, 0, 0, 0, 0, "", "nullptr (uninitialized)", (), ())
    assert single == several[1] == undefined
    assert not single.defined
    assert [tensor.defined for tensor in several] == [True, False, True]


def test_list_of_optional_tensors_keeps_none_in_place(read_values):
    (indices,) = read_values([None, T(3, 4, 0, 6, 8, dtype="long int")])

    assert indices[0] is None
    assert indices[1].dtype == "long int"


def test_nested_lists_and_tuples_are_walked_in_parallel(read_values):
    first, second = T(3, 4, 0, 6, 4, shape=(2, 3)), T(5, 4, 6, 1, 8, shape=(), dtype="double")
    values = read_values([[first, second], [second]], (first, True, [1, 2]), [[1, 2], [3]])

    a = TensorRef(3, 4, 0, 6, 4, "cuda:0", "float", (2, 3), (3, 1))
    b = TensorRef(5, 4, 6, 1, 8, "cuda:0", "double", (), ())
    assert values == (((a, b), (b,)), (a, True, (1, 2)), ((1, 2), (3,)))
    assert list(tensors(values)) == [a, b, b, a]


def test_flattening_counts_tensors_in_lists_and_tuples(read_values):
    one, two, three = (T(i, i, 0, 1, 4) for i in (3, 4, 5))

    assert [t.tensor_id for t in tensors(read_values([one], (two,), three))] == [3, 4, 5]


@pytest.mark.parametrize("tail", [["grid(8,)", 0], [0], [140382148398488]])
def test_kernel_with_columns_shorter_than_its_values_is_read(read_inputs, tail):
    kinds = ["String" if isinstance(value, str) else "Int" for value in tail]
    columns = {
        "values": [[15, 4, 0, 16, 4, "cuda:0"], 16, *tail],
        "types": ["Tensor(float)", "Int", *kinds],
        "shapes": [[4, 4], [], *[[] for _ in tail]],
        "strides": [[4, 1], []],
    }

    tensor = TensorRef(15, 4, 0, 16, 4, "cuda:0", "float", (4, 4), (4, 1))
    assert read_inputs(columns) == (tensor, 16, *tail)


def test_tensor_without_strides_entry_has_none_beside_tensors_that_have(read_inputs):
    columns = {
        "values": [[1, 2, 0, 6, 4, "cpu"], [3, 4, 0, 6, 4, "cpu"]],
        "types": ["Tensor(float)", "Tensor(float)"],
        "shapes": [[2, 3]],
        "strides": [[3, 1]],
    }

    first, second = read_inputs(columns)
    assert (first.shape, first.strides) == ((2, 3), (3, 1))
    assert (second.shape, second.strides, second.end) == ((6,), None, 24)


def test_values_without_types_are_kept_where_they_explain_themselves(read_inputs):
    columns = {"values": [1, 2.5, True, "sum", None, "<Generator>", [1, 2, 0, 6, 4, "cpu"]]}

    untyped = (Opaque("Generator"), Opaque("untyped"))
    assert read_inputs(columns) == (1, 2.5, True, "sum", None, *untyped)


@pytest.mark.parametrize("schema", [FLAT, LATEST])
def test_five_numbers_without_a_device_are_a_tensor_of_2022(read_values, schema):
    old = Typed([3, 4, 0, 6, 4], "Tensor(float)", [6], [1])

    (tensor,) = read_values(old, schema=schema)

    assert (tensor.storage_id, tensor.numel, tensor.device) == (4, 6, "")


def test_infinities_are_floats_where_the_type_is_double_and_text_where_it_is_string(read_values):
    names = ["inf", "-inf", "nan", "-nan"]

    doubles = read_values(*[Typed(name, "Double") for name in names])
    strings = read_values(*names)
    (several,) = read_values([Typed("inf", "Double"), 1.5])

    assert doubles[:2] == (math.inf, -math.inf)
    assert all(math.isnan(value) for value in doubles[2:])
    assert strings == ("inf", "-inf", "nan", "-nan")
    assert several == (math.inf, 1.5)


@pytest.mark.parametrize(
    "kind", ["Generator", "ComplexDouble", "Storage", "Stream", "Object", "SymInt", "GenericDict"]
)
def test_what_the_observer_only_names_is_opaque(read_values, kind):
    assert read_values(Typed(f"<{kind}>", kind)) == (Opaque(kind),)
    assert read_values([Typed(f"<{kind}>", kind)]) == ((Opaque(kind),),)


def test_number_of_an_unknown_type_is_a_number(read_values):
    assert read_values(Typed(5, "SymInt"), Typed(True, "SymBool")) == (5, True)


def test_plain_values_stay_as_they_are(read_values):
    device = Typed("cuda:0", "Device")

    read = read_values(15, 0.5, True, None, NONE, "a, b", device, [], [True, False], ["x"])

    assert read == (15, 0.5, True, None, None, "a, b", "cuda:0", (), (True, False), ("x",))
    assert type(read[2]) is bool


def test_double_written_as_a_whole_number_is_a_float(read_values):
    (value,) = read_values(Typed(2, "Double"))

    assert type(value) is float


def test_offsets_strides_and_wide_numbers_are_taken_as_recorded(read_values):
    (tensor,) = read_values(T(2, 3, 2**40, 12, 4, shape=(4, 3), strides=(6, 2)))

    assert (tensor.offset, tensor.strides, tensor.extent) == (2**40, (6, 2), 23)


@pytest.mark.parametrize(
    ("value", "type_name", "kind"),
    [
        ("oops", "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, "6", 4, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, 6.5, 4, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([True, 2, 0, 6, 4, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([1, True, 0, 6, 4, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, True, 6, 4, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, True, 4, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, 6, True, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, 6, 4, True], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, 6, 4, 5], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, 6, 4, ["cpu"]], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, 6, 3, "cpu"], "Tensor(float)", "damaged Tensor(float)"),
        ([1, 2, 0, 6, 4, "cpu"], "Tensor(long int)", "damaged Tensor(long int)"),
        (None, "Tensor(float)", "damaged Tensor(float)"),
        (5, "GenericList[Int]", "damaged GenericList"),
        ("x", "Int", "damaged Int"),
        ({}, "Double", "damaged Double"),
        ("x", "Double", "damaged Double"),
        (5, "String", "damaged String"),
    ],
)
def test_value_that_does_not_fit_its_type_is_opaque(read_values, value, type_name, kind):
    assert read_values(Typed(value, type_name, [6], [1])) == (Opaque(kind),)


def test_strict_reading_refuses_a_value_that_does_not_fit_its_type(read_inputs):
    with pytest.raises(TraceError, match=r"node 5 \(aten::op\) holds a damaged Int\."):
        read_inputs({"values": ["x"], "types": ["Int"], "shapes": [[]]}, strict=True)


def test_strict_reading_refuses_a_call_with_results_that_has_no_schema(read_nodes):
    relu = node(5, "aten::relu", 2, [T(3, 4, 0, 6, 4)], [T(5, 6, 0, 6, 4)])

    with pytest.raises(TraceError, match=r"node 5 \(aten::relu\) has lost its op_schema\."):
        read_nodes(relu, strict=True)


def test_strict_reading_takes_what_never_has_a_schema(read_nodes):
    tensor = T(3, 4, 0, 6, 4)
    label = node(5, "autograd::engine::evaluate_function: ReluBackward0", 2, [tensor])
    named_like_an_operator = node(6, "aten::relu", 2, [tensor])
    kernel = node(7, "aten::relu", 2, [tensor], [tensor], kernel_backend="triton")

    assert read_nodes(label, named_like_an_operator, kernel, strict=True).notes == ()


@pytest.mark.parametrize("one", [True, 1.0])
def test_shape_that_equals_one_read_before_but_is_of_other_numbers_is_damaged(read_values, one):
    tensor = [1, 2, 0, 6, 4, "cpu"]
    whole = Typed(tensor, "Tensor(float)", [1, 6], [6, 1])
    shape = Typed(tensor, "Tensor(float)", [one, 6], [6, 1])
    strides = Typed(tensor, "Tensor(float)", [1, 6], [6, one])

    damaged = Opaque("damaged Tensor(float)")
    assert read_values(whole, shape, strides)[1:] == (damaged, damaged)


@pytest.mark.parametrize("shape", [["s0"], 5, [2.5], [[2]], {"a": 1}])
def test_shape_that_is_no_list_of_integers_damages_its_tensor_only(read_values, shape):
    broken = Typed([1, 2, 0, 6, 4, "cpu"], "Tensor(float)", shape, [1])

    assert read_values(broken, 7) == (Opaque("damaged Tensor(float)"), 7)


def test_list_with_more_or_fewer_values_than_types_is_read(read_values):
    more = Typed([1, 2, 3], "GenericList[Int]", [[], [], []])
    fewer = Typed([1], "GenericList[Int,Int]", [[], []])
    nameless = Typed([1, "x"], "GenericList[]", [])

    assert read_values(more, fewer, nameless) == ((1, 2, 3), (1,), (1, "x"))


@pytest.mark.parametrize(
    "type_name",
    ["", "]", "[", ",", "Int,Int", "Tensor(float)x", "GenericList[", 5, None, [], {}],
)
def test_type_that_makes_no_sense_does_no_harm(read_inputs, type_name):
    columns = {"values": [3, 4], "types": [type_name, "Int"], "shapes": [[], []]}

    assert read_inputs(columns) == (3, 4)


@pytest.mark.parametrize("columns", [None, 5, "x", [], {}, {"values": 5}, {"values": {"a": 1}}])
def test_inputs_that_are_no_columns_are_no_inputs(read_inputs, columns):
    assert read_inputs(columns) == ()


@pytest.mark.parametrize("depth", [10, 60, 200, 100_000])
def test_deeply_nested_type_is_no_recursion(read_values, depth):
    type_name = "GenericList[" * depth + "Int" + "]" * depth

    assert len(read_values(Typed([7], type_name), 1)) == 2


def test_parentheses_without_end_are_no_loop(read_values):
    assert len(read_values(Typed(1, "Tensor(" * 100_000), Typed(1, "(" * 100_000))) == 2


def test_list_cut_off_by_the_observer_is_read_as_far_as_it_goes(read_values):
    (long,) = read_values([0] * 4097)

    assert long == (0,) * 4097
