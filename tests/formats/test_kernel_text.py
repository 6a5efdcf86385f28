"""What the text of a generated kernel says of its parameters."""

from __future__ import annotations

from pathlib import Path

from et_replay.formats.kernel_text import KernelText, read_kernel_text

SOURCE = """
@triton_heuristics.pointwise(
    inductor_meta={'grid_type': 'Grid1D', 'mutated_arg_names': ['in_out_ptr0', 'out_ptr2']},
)
@triton.jit
def triton_poi_fused_0(in_out_ptr0, in_ptr0, in_ptr1, out_ptr0, out_ptr2, n, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x1), None, eviction_policy='evict_last')
    tmp5 = tl.load(in_ptr0 + (x0), None)
    tmp1 = tl.full([XBLOCK], 512, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert(((0 <= tmp4) & (tmp4 < 512)) | ~(xmask), "index out of bounds")
    tmp6 = tl.load(in_ptr1 + (x0 + 256*tmp4), None)
    tl.store(out_ptr0 + (x2), tmp6, None)
    tl.store(in_out_ptr0 + (x2), tmp6, None)
    tl.atomic_add(out_ptr2 + (tmp4), tmp6, None, sem='relaxed')
"""


def text_of(
    folder: Path, source: str = SOURCE, name: str = "triton_poi_fused_0"
) -> KernelText | None:
    path = folder / "cq5.py"
    path.write_text(source)
    return read_kernel_text(path, name)


def test_stored_to_and_never_loaded_is_written_unread(tmp_path: Path) -> None:
    text = text_of(tmp_path)

    assert text is not None
    assert text.written_unread() == {0, 3}


def test_a_buffer_that_is_loaded_too_or_is_the_callers_is_not(tmp_path: Path) -> None:
    loaded = SOURCE.replace("tl.load(in_ptr0 + (x0)", "tl.load(in_out_ptr0 + (x0)")
    callers = SOURCE.replace("['in_out_ptr0', 'out_ptr2']", "['out_ptr0', 'out_ptr2']")

    for source, expected in ((loaded, {3}), (callers, {0})):
        text = text_of(tmp_path, source)
        assert text is not None
        assert text.written_unread() == expected


def test_stored_to_or_changed_in_place_is_written(tmp_path: Path) -> None:
    text = text_of(tmp_path)

    assert text is not None
    assert text.written() == {0, 3, 4}


def test_what_is_asserted_of_an_index_limits_the_entries_that_it_was_loaded_from(
    tmp_path: Path,
) -> None:
    text = text_of(tmp_path)

    assert text is not None
    assert text.index_limits() == {1: 512}


def test_a_limit_that_is_an_argument_says_nothing(tmp_path: Path) -> None:
    text = text_of(tmp_path, SOURCE.replace("tmp4 < 512", "tmp4 < ks0"))

    assert text is not None
    assert text.index_limits() == {}


def test_a_file_of_another_form_has_no_text(tmp_path: Path) -> None:
    assert text_of(tmp_path, "print('hello')") is None
    assert text_of(tmp_path, SOURCE, "triton_red_fused_1") is None
    assert text_of(tmp_path, SOURCE.replace("poi_fused_0(", "("), "triton_red_fused_1") is not None
    assert read_kernel_text(tmp_path / "missing.py", "triton_poi_fused_0") is None
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    assert read_kernel_text(tmp_path / "binary.py", "triton_poi_fused_0") is None
