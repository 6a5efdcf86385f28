"""The type names and codes that traces hold, against torch's own."""

from __future__ import annotations

import pytest
import torch

from et_replay.replay.dtypes import layout, memory_format, scalar_type, torch_dtype

NAMES = {
    "unsigned char": "uint8",
    "signed char": "int8",
    "short int": "int16",
    "int": "int32",
    "long int": "int64",
    "long": "int64",
    "long long": "int64",
    "c10::Half": "float16",
    "float": "float32",
    "double": "float64",
    "c10::complex<c10::Half>": "complex32",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "bool": "bool",
    "c10::quint8": "quint8",
    "c10::BFloat16": "bfloat16",
    "c10::bits8": "bits8",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "short unsigned int": "uint16",
    "unsigned int": "uint32",
    "long unsigned int": "uint64",
    "c10::dummy_uint1_7_t<1>": "uint1",
    "c10::dummy_uint1_7_t<4>": "uint4",
    "c10::dummy_int1_7_t<4>": "int4",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::Float4_e2m1fn_x2": "float4_e2m1fn_x2",
}


@pytest.mark.parametrize(("name", "attribute"), NAMES.items())
def test_a_recorded_type_name_is_torchs_type(name: str, attribute: str) -> None:
    assert torch_dtype(name) is getattr(torch, attribute, None)


@pytest.mark.parametrize("name", ["c10::Foo", "", "nullptr (uninitialized)", "dtype"])
def test_an_unknown_type_name_is_no_type(name: str) -> None:
    assert torch_dtype(name) is None


@pytest.mark.parametrize("code", range(46))
def test_a_scalar_type_code_means_what_the_dispatcher_makes_of_it(code: int) -> None:
    expected = scalar_type(code)
    if expected is None:
        pytest.skip(f"this build of torch lacks the type with code {code}")

    made = torch.ops.aten.empty.memory_format([0], dtype=code, device="meta")

    assert made.dtype is expected


def test_unknown_codes_are_none() -> None:
    assert [scalar_type(-1), scalar_type(46), layout(-1), layout(99), memory_format(4)] == [
        None
    ] * 5


def test_layouts_and_memory_formats_have_c10s_codes() -> None:
    assert [layout(code) for code in (0, 2, 7)] == [torch.strided, torch.sparse_csr, torch.jagged]
    assert [memory_format(code) for code in range(4)] == [
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
    ]
