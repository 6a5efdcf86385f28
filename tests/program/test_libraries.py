"""Memory that libraries take: the sizes that an H200 with torch 2.11 recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from program.programs import program_of
from trace_builder import T, Typed, operator, thread

from et_replay.program.libraries import library_allocations
from et_replay.program.reductions import reduction_buffer

MIB = 2**20
Taken = list[tuple[str, int, bool]]


def tensor(id: int, shape: Sequence[int], device: str = "cuda:0", **others: object) -> Typed:
    numel = 1
    for size in shape:
        numel *= size
    return T(id, id + 1, 0, numel, 4, device, shape, **others)  # type: ignore[arg-type]


def taken(folder: Path, *nodes: object) -> list[Taken]:
    program = program_of(folder, *nodes)  # type: ignore[arg-type]
    return [[(a.name, a.size, a.kept) for a in each] for each in library_allocations(program)]


@pytest.mark.parametrize(
    ("rows", "outputs", "recorded"),
    [
        (4096, 512, 16777216),
        (4096, 768, 25165824),
        (4096, 1536, 50331648),
        (4096, 2304, 75497472),
        (4096, 3072, 100663296),
        (4096, 8000, 139264000),
        (64, 768, 0),
        (4096, 1000000, 0),
    ],
)
def test_reductions_take_what_was_recorded(rows: int, outputs: int, recorded: int) -> None:
    assert reduction_buffer(rows, outputs) == recorded


def test_double_takes_twice_the_buffer_of_float() -> None:
    assert reduction_buffer(4096, 768, 8) == 2 * 25165824


def test_each_thread_that_multiplies_keeps_a_workspace(tmp_path: Path) -> None:
    matrix = tensor(11, (8, 8))
    products = [
        operator(4, "aten::mm", 2, [matrix, matrix]),
        operator(5, "aten::mm", 2, [matrix, matrix]),
        thread(30, tid=2),
        operator(31, "aten::linear", 30, [matrix, matrix], tid=2),
        operator(32, "aten::addmm", 31, [matrix, matrix, matrix], tid=2),
    ]

    assert taken(tmp_path, *products) == [
        [("cuBLAS workspace", 32 * MIB, True), ("cuBLASLt workspace", MIB, True)],
        [],
        [("cuBLAS workspace", 32 * MIB, True)],
    ]


def test_a_sum_over_leading_dimensions_takes_a_buffer(tmp_path: Path) -> None:
    batch, sums = tensor(11, (4, 1024, 768)), tensor(13, (768,))
    turned = tensor(15, (4096, 768), strides=(1, 4096))

    assert taken(
        tmp_path,
        operator(4, "aten::sum", 2, [batch, [0, 1], False], [sums]),
        operator(5, "aten::sum", 2, [batch, [-3, -2], False], [sums]),
        operator(6, "aten::sum", 2, [batch, [1], False], [tensor(17, (4, 768))]),
        operator(7, "aten::sum", 2, [turned, [0], False], [tensor(19, (768,))]),
    ) == [[("reduction buffer", 25165824, False)]] * 2 + [[], []]


def test_the_cpu_takes_nothing(tmp_path: Path) -> None:
    batch, sums = tensor(11, (4096, 768), "cpu"), tensor(13, (768,), "cpu")

    assert taken(
        tmp_path,
        operator(4, "aten::sum", 2, [batch, [0], False], [sums]),
        operator(5, "aten::mm", 2, [batch, batch]),
    ) == [[], []]


@pytest.mark.parametrize(
    ("image", "weight", "result", "stride", "recorded"),
    [
        ((32, 3, 224, 224), (64, 3, 7, 7), (32, 64, 112, 112), 2, 122065680),
        ((32, 256, 14, 14), (256, 256, 3, 3), (32, 256, 14, 14), 1, 15204368),
        ((32, 512, 7, 7), (2048, 512, 1, 1), (32, 2048, 7, 7), 1, 16056336),
        ((32, 512, 28, 28), (1024, 512, 1, 1), (32, 1024, 14, 14), 2, 77070483),
        ((32, 64, 56, 56), (256, 64, 1, 1), (32, 256, 56, 56), 1, 0),
    ],
)
def test_forward_convolutions_take_nearly_what_was_recorded(
    image: Sequence[int],
    weight: Sequence[int],
    result: Sequence[int],
    stride: int,
    recorded: int,
    tmp_path: Path,
) -> None:
    given = [tensor(11, image), tensor(13, weight), [1, 1], [stride, stride]]

    [[*found]] = taken(
        tmp_path, operator(4, "aten::cudnn_convolution", 2, given, [tensor(15, result)])
    )

    assert sum(size for _, size, _ in found) == pytest.approx(recorded, abs=200)


@pytest.mark.parametrize(
    ("image", "weight", "result", "stride", "recorded"),
    [
        ((32, 1024, 14, 14), (256, 1024, 1, 1), (32, 256, 14, 14), 1, [33554432]),
        ((32, 64, 56, 56), (64, 64, 1, 1), (32, 64, 56, 56), 1, [524288]),
        ((32, 1024, 14, 14), (512, 1024, 1, 1), (32, 512, 14, 14), 1, [46924335]),
        ((32, 512, 7, 7), (2048, 512, 1, 1), (32, 2048, 7, 7), 1, [16056336, 16056336]),
        ((32, 256, 56, 56), (512, 256, 1, 1), (32, 512, 28, 28), 2, [154140819, 162529935]),
        ((32, 128, 28, 28), (128, 128, 3, 3), (32, 128, 28, 28), 1, [26279952, 34538151]),
        ((32, 64, 56, 56), (64, 64, 3, 3), (32, 64, 56, 56), 1, [51527696, 53592743]),
    ],
)
def test_gradients_of_convolutions_take_nearly_what_was_recorded(
    image: Sequence[int],
    weight: Sequence[int],
    result: Sequence[int],
    stride: int,
    recorded: list[int],
    tmp_path: Path,
) -> None:
    tensors = [tensor(11, result), tensor(13, image), tensor(15, weight)]
    others = [[0], [stride, stride], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]]

    [[*found]] = taken(tmp_path, operator(4, "aten::convolution_backward", 2, [*tensors, *others]))

    assert [size for _, size, _ in found] == pytest.approx(recorded, abs=700)
    assert {(name, kept) for name, _, kept in found} == {("cuDNN workspace", False)}


def test_the_first_convolution_of_a_net_has_no_gradient_of_its_input(tmp_path: Path) -> None:
    image, weight = tensor(11, (32, 128, 28, 28)), tensor(13, (128, 128, 3, 3))
    others = [[0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]]

    [[found]] = taken(
        tmp_path, operator(4, "aten::convolution_backward", 2, [image, image, weight, *others])
    )

    assert found[1] == pytest.approx(34538151, abs=700)


def test_channels_last_needs_no_conversion(tmp_path: Path) -> None:
    strides = (256 * 196, 1, 14 * 256, 256)
    image = tensor(11, (32, 256, 14, 14), strides=strides)
    given = [image, tensor(13, (256, 256, 3, 3)), [1, 1], [1, 1]]

    assert taken(tmp_path, operator(4, "aten::cudnn_convolution", 2, given, [image])) == [[]]
