"""Torch's types from what a trace holds of them: C++ type names and codes of c10's enumerations."""

from __future__ import annotations

import torch

# c10::ScalarType: code, name in torch, and the names compilers print for the C++ type.
_TYPES: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (0, "uint8", ("unsigned char", "uint8_t")),
    (1, "int8", ("signed char", "char", "int8_t")),
    (2, "int16", ("short int", "short", "int16_t")),
    (3, "int32", ("int", "int32_t")),
    (4, "int64", ("long int", "long", "long long", "long long int", "__int64", "int64_t")),
    (5, "float16", ("c10::Half",)),
    (6, "float32", ("float",)),
    (7, "float64", ("double",)),
    (8, "complex32", ("c10::complex<c10::Half>",)),
    (9, "complex64", ("c10::complex<float>",)),
    (10, "complex128", ("c10::complex<double>",)),
    (11, "bool", ("bool",)),
    (12, "qint8", ("c10::qint8",)),
    (13, "quint8", ("c10::quint8",)),
    (14, "qint32", ("c10::qint32",)),
    (15, "bfloat16", ("c10::BFloat16",)),
    (16, "quint4x2", ("c10::quint4x2",)),
    (17, "quint2x4", ("c10::quint2x4",)),
    (18, "bits1x8", ("c10::bits1x8",)),
    (19, "bits2x4", ("c10::bits2x4",)),
    (20, "bits4x2", ("c10::bits4x2",)),
    (21, "bits8", ("c10::bits8",)),
    (22, "bits16", ("c10::bits16",)),
    (23, "float8_e5m2", ("c10::Float8_e5m2",)),
    (24, "float8_e4m3fn", ("c10::Float8_e4m3fn",)),
    (25, "float8_e5m2fnuz", ("c10::Float8_e5m2fnuz",)),
    (26, "float8_e4m3fnuz", ("c10::Float8_e4m3fnuz",)),
    (27, "uint16", ("short unsigned int", "unsigned short", "uint16_t")),
    (28, "uint32", ("unsigned int", "uint32_t")),
    (29, "uint64", ("long unsigned int", "unsigned long", "unsigned long long", "uint64_t")),
    *((29 + bits, f"uint{bits}", (f"c10::dummy_uint1_7_t<{bits}>",)) for bits in range(1, 8)),
    *((36 + bits, f"int{bits}", (f"c10::dummy_int1_7_t<{bits}>",)) for bits in range(1, 8)),
    (44, "float8_e8m0fnu", ("c10::Float8_e8m0fnu",)),
    (45, "float4_e2m1fn_x2", ("c10::Float4_e2m1fn_x2",)),
)
_LAYOUTS = (
    "strided",
    "sparse_coo",
    "sparse_csr",
    "_mkldnn",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "jagged",
)
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")

_BY_NAME = {alias: name for _, name, aliases in _TYPES for alias in aliases}
_BY_CODE = {code: name for code, name, _ in _TYPES}


_QUANTISED = frozenset((torch.qint8, torch.quint8, torch.qint32))
_PACKED_QUANTISED = frozenset((torch.quint4x2, torch.quint2x4))


def torch_dtype(name: str) -> torch.dtype | None:
    """Return the dtype of a C++ type, None if it is unknown or this build of torch lacks it."""
    found = getattr(torch, _BY_NAME.get(name, ""), None)
    return found if isinstance(found, torch.dtype) else None


def is_quantised(dtype: torch.dtype) -> bool:
    """Tell whether tensors of this type have a scale and a zero point."""
    return dtype in _QUANTISED


def is_stood_for_by_bytes(name: str, device_type: str) -> bool:
    """Tell whether tensors of this type are created as raw bytes, as torch can make no others.

    Those are types that this torch lacks, packed quantised ones, and on meta all quantised ones.
    """
    dtype = torch_dtype(name)
    if dtype is None or dtype in _PACKED_QUANTISED:
        return True
    return dtype in _QUANTISED and device_type == "meta"


def scalar_type(code: int) -> torch.dtype | None:
    """Return the dtype of a ScalarType code, None if it is unknown or torch here lacks it."""
    found = getattr(torch, _BY_CODE.get(code, ""), None)
    return found if isinstance(found, torch.dtype) else None


def layout(code: int) -> torch.layout | None:
    """Return the layout with a c10::Layout code, None if it is unknown."""
    found = getattr(torch, _LAYOUTS[code], None) if 0 <= code < len(_LAYOUTS) else None
    return found if isinstance(found, torch.layout) else None


def memory_format(code: int) -> torch.memory_format | None:
    """Return the memory format with a c10::MemoryFormat code, None if it is unknown."""
    found = _MEMORY_FORMATS[code] if 0 <= code < len(_MEMORY_FORMATS) else ""
    return getattr(torch, found, None)
