"""Quantities become text with three significant digits, and sizes are read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_replay.errors import UsageError
from et_replay.units import (
    counted,
    format_bytes,
    format_duration,
    format_rate,
    format_share,
    parse_bytes,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (33_554_432, "32.0 MiB"),
        (1024**3 - 1, "1.00 GiB"),
        (3_077_896_704, "2.87 GiB"),
        (80 * 1024**3, "80.0 GiB"),
        (1023 * 1024**3, "1023 GiB"),
        (-1536, "-1.50 KiB"),
        (2000 * 1024**5, "2000 PiB"),
    ],
)
def test_a_size_has_three_digits_and_an_iec_unit(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (810, "810 ns"),
        (999.9, "1.00 us"),
        (2_040, "2.04 us"),
        (22_367_913, "22.4 ms"),
        (999_900_000, "1.00 s"),
        (95_000_000_000, "95.0 s"),
        (600_000_000_000, "600 s"),
    ],
)
def test_a_duration_has_three_digits_and_a_unit(nanoseconds: float, text: str) -> None:
    assert format_duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0.00 B/s"), (999.4, "999 B/s"), (52_300, "52.3 kB/s"), (999_500_000, "1.00 GB/s")],
)
def test_a_bandwidth_is_in_powers_of_1000(rate: float, text: str) -> None:
    assert format_rate(rate) == text


def test_a_share_is_a_percentage() -> None:
    assert format_share(0.1234) == "12.3 %"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1_048_576),
        ("512B", 512),
        ("24GiB", 24 * 1024**3),
        ("24 gib", 24 * 1024**3),
        ("24G", 24 * 1024**3),
        ("24GB", 24_000_000_000),
        ("1.5g", 1_610_612_736),
        (".5KiB", 512),
        (" 2MB ", 2_000_000),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_size_is_read_as_iec_as_si_or_as_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "24XB", "1e9", "24GiB/s", "nan", "1,5g"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="Expected a size such as 24GiB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["9223372036854775808", 320 * "9", 5000 * "9", "8192PiB"])
def test_a_size_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"Expected at most 9223372036854775807 bytes, got '\d+"):
        parse_bytes(text)


@given(st.integers(min_value=0, max_value=2**53))
def test_a_written_size_reads_back_to_within_its_three_digits(size: int) -> None:
    assert abs(parse_bytes(format_bytes(size)) - size) <= size * 0.005


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 requests"), (1, "1 request"), (2, "2 requests")]
)
def test_one_is_no_plural(count: int, text: str) -> None:
    assert counted(count, "request") == text
