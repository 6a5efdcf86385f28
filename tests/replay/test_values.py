"""Made-up values are valid for their use, and results get the recorded shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from replay.recorded_calls import call, integers, run, tensor

from et_replay.execution_trace import Node, TensorRef
from et_replay.formats.resources import resource_folders
from et_replay.replay.conforming import conform
from et_replay.replay.operators import resolve
from et_replay.replay.recorded_integers import recorded_integers
from et_replay.replay.values import Requirement, enforce, fill, requirements

ANY_TYPE = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.uint16, torch.uint32, torch.uint64, torch.bits8, torch.quint8),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]
EMBEDDING = (
    "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1,"
    " bool scale_grad_by_freq=False, bool sparse=False) -> Tensor"
)
INDEX_PUT = (
    "aten::_index_put_impl_(Tensor(a!) self, Tensor?[] indices, Tensor values,"
    " bool accumulate=False, bool unsafe=False) -> Tensor(a!)"
)
INDEX = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
WHERE = "aten::where(Tensor condition) -> Tensor[]"
NLL = (
    "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction,"
    " SymInt ignore_index) -> (Tensor output, Tensor total_weight)"
)
GATHER = "aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"
BAG = (
    "aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool"
    " scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None,"
    " bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)"
)
REPEAT = "aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor"
CUBE, MASK = tensor(3, 4, 5), tensor(3, 4, dtype="bool", itemsize=1)
MASK_OF_ROWS = tensor(3, 4, 1, dtype="bool", itemsize=1)
MASKED_SELECT = "aten::masked_select(Tensor self, Tensor mask) -> Tensor"
PACK = (
    "aten::_pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first)"
    " -> (Tensor, Tensor)"
)
BCE = (
    "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None,"
    " int reduction=1) -> Tensor"
)
CUT = (
    "aten::tensor_split.tensor_indices_or_sections(Tensor(a -> *) self,"
    " Tensor tensor_indices_or_sections, int dim=0) -> Tensor(a)[]"
)
SEGMENTS = (
    "aten::segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None,"
    " Tensor? offsets=None, int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor"
)
WEIGHTS_BACKWARD = (
    "aten::_embedding_bag_per_sample_weights_backward(Tensor grad, Tensor weight, Tensor indices,"
    " Tensor offsets, Tensor offset2bag, int mode, int padding_idx=-1) -> Tensor"
)
DIVIDE = "aten::div.Tensor(Tensor self, Tensor other) -> Tensor"
CHOLESKY = "aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor"
COMPLEX = tensor(3, dtype="c10::complex<float>", itemsize=8)
REMAINDER = "aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor"


def needed(node: Node) -> dict[int, Requirement]:
    return requirements(node, resolve(node))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (call(EMBEDDING, tensor(8, 4), integers(2, 2), -1, False, False), {1: Requirement(0, 7)}),
        (call(GATHER, tensor(3, 5), 1, integers(3, 2), False), {1: Requirement(0, 4)}),
        (call(GATHER, tensor(3, 5), -2, integers(3, 5), False), {1: Requirement(0, 2)}),
        (call(NLL, tensor(4, 10), integers(4), None, 1, -100), {1: Requirement(0, 9, exempt=-100)}),
        (call(NLL, tensor(10), integers(), None, 1, -100), {1: Requirement(0, 9, exempt=-100)}),
        (
            call(INDEX_PUT, CUBE, (None, integers(2), integers(2)), tensor(3, 2), False, False),
            {1: Requirement(0, 3), 2: Requirement(0, 4)},
        ),
        (
            call(INDEX_PUT, CUBE, (MASK, integers(6)), tensor(6), False, False),
            {2: Requirement(0, 4)},
        ),
        (
            call(INDEX, CUBE, (MASK,), outputs=[tensor(7, 5)]),
            {1: Requirement(total=7, likely=(0, 1))},
        ),
        (
            call(INDEX, tensor(2, 3, 4), (None, MASK), outputs=[tensor(2, 6)]),
            {1: Requirement(total=6, likely=(0, 1))},
        ),
        (call(WHERE, MASK, outputs=[(integers(5),)]), {0: Requirement(total=5, likely=(0, 1))}),
        (
            call(MASKED_SELECT, CUBE, MASK_OF_ROWS, outputs=[tensor(20)]),
            {1: Requirement(total=4, likely=(0, 1))},
        ),
        (call(REPEAT, integers(4), 10, outputs=[integers(10)]), {0: Requirement(0, total=10)}),
        (call(BCE, tensor(3), tensor(3), None, 1), {0: Requirement(0, 1), 1: Requirement(0, 1)}),
        (call("aten::relu(Tensor self) -> Tensor", integers(3)), {}),
        (
            call(CUT, tensor(7, 2), integers(2), 0, outputs=[(tensor(1, 2), tensor(4, 2), CUBE)]),
            {1: Requirement(0, 7, exact=(1, 5))},
        ),
        (
            call(SEGMENTS, tensor(2, 5), "sum", integers(2, 3), None, None, 1, False, None),
            {1: Requirement(0, total=5, rows=2)},
        ),
        (
            call(REMAINDER, integers(3), integers(3), outputs=[integers(3)]),
            {1: Requirement(1, likely=(1, 8))},
        ),
        (
            call(DIVIDE, integers(3), integers(3), outputs=[tensor(3)]),
            {1: Requirement(likely=(1, 8))},
        ),
        (call(DIVIDE, COMPLEX, COMPLEX, outputs=[COMPLEX]), {}),
        (call(CHOLESKY, tensor(2, 3, 3), False), {0: Requirement(matrix=3)}),
        (
            call(WEIGHTS_BACKWARD, tensor(2, 4), tensor(9, 4), *[integers(5)] * 3, 0, -1),
            {
                2: Requirement(0, 8),
                3: Requirement(0, 4, even=True),
                4: Requirement(0, 1, even=True),
            },
        ),
    ],
)
def test_schema_knowledge_bounds_values(node: Node, expected: dict[int, Requirement]) -> None:
    assert needed(node) == expected


def embedding(tensor_range: str) -> Node:
    inputs = (tensor(8, 4), integers(2, 2), -1, False, False)
    return call(EMBEDDING, *inputs, tensor_range=tensor_range)


@pytest.mark.parametrize(
    ("tensor_range", "expected"),
    [
        ('{"1":[2,5]}', (2, 5)),
        ('{"1":[2,70]}', (2, 7)),
        ('{"1":[90,95]}', (0, 7)),
        ('{"1":[5,2]}', (0, 7)),
        ('{"1":["a",2]}', (0, 7)),
        ('{"7":[0,1]}', (0, 7)),
        ("{broken", (0, 7)),
        ("", (0, 7)),
    ],
)
def test_a_recorded_range_counts_where_it_is_possible(
    tensor_range: str, expected: tuple[int, int]
) -> None:
    assert needed(embedding(tensor_range))[1].drawn_from == expected


def test_requirements_intersect_and_contradictions_become_zeros() -> None:
    assert Requirement(0, 7) & Requirement(2, 9) == Requirement(2, 7)
    assert Requirement(0, 7) & Requirement(high=3) == Requirement(0, 3)
    assert Requirement(0, 3) & Requirement(5, 9) == Requirement(0, 0)
    assert Requirement(0, 3) & None == Requirement(0, 3)


@pytest.mark.parametrize("dtype", ANY_TYPE, ids=str)
@pytest.mark.parametrize("requirement", [None, Requirement(0, 1)])
def test_every_type_can_be_filled(dtype: torch.dtype, requirement: Requirement | None) -> None:
    with torch.inference_mode():
        filled = torch.empty(3, 4, dtype=dtype)
        fill(filled, requirement, seed=1)


@pytest.mark.parametrize("name", ["uint4", "int4", "float4_e2m1fn_x2", "float8_e8m0fnu"])
def test_types_of_newer_builds_can_be_filled(name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip(f"this build of torch lacks {name}")

    fill(torch.empty(3, 4, dtype=getattr(torch, name)), None, seed=1)


def test_integers_are_zero_unless_something_is_known_of_them() -> None:
    unknown, known = torch.empty(64, dtype=torch.int64), torch.empty(64, dtype=torch.int64)

    fill(unknown, None, seed=1)
    fill(known, Requirement(3, 6), seed=1)

    assert unknown.unique().tolist() == [0]
    assert known.unique().tolist() == [3, 4, 5, 6]


def test_the_seed_alone_decides() -> None:
    first, second, other = (torch.empty(4, 4) for _ in range(3))

    fill(first, None, seed=7)
    fill(second, None, seed=7)
    fill(other, None, seed=8)

    assert first.equal(second)
    assert not first.equal(other)


def test_a_deep_net_of_made_up_weights_neither_grows_nor_vanishes() -> None:
    activation = torch.ones(8, 256)
    for seed in range(40):
        weight = torch.empty(256, 256)
        fill(weight, None, seed)
        activation = torch.nn.functional.linear(activation, weight)

    assert 0.5 < activation.mean() < 2


def test_small_values_of_half_precision_are_no_denormals() -> None:
    weight = torch.empty(4, 2**20, dtype=torch.float16)

    fill(weight, None, seed=1)

    assert weight.mean() > torch.finfo(torch.float16).tiny


def test_expanded_and_strided_views_are_filled_within_their_entries() -> None:
    base = torch.full((4, 6), -1.0)

    fill(base[:, ::2], None, seed=1)
    fill(torch.empty(3, 1).expand(3, 5), None, seed=1)

    assert (base[:, ::2] >= 0).all()
    assert (base[:, 1::2] == -1).all()


def test_meta_tensors_stay_as_they_are() -> None:
    fill(torch.empty(3, device="meta"), Requirement(0, 1), seed=1)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (Requirement(0, 8, even=True), [0, 2, 4, 6, 8]),
        (Requirement(0, 0, even=True), [0, 0, 0, 0, 0]),
        (Requirement(total=12), [3, 3, 2, 2, 2]),
        (Requirement(0, 6, total=12), [6, 2, 2, 1, 1]),
        (Requirement(0, 1, total=3), [1, 1, 1, 0, 0]),
        (Requirement(0, 1, total=0), [0, 0, 0, 0, 0]),
    ],
)
def test_offsets_rise_and_lengths_fall(requirement: Requirement, expected: list[int]) -> None:
    values = torch.empty(5, dtype=torch.int64)

    fill(values, requirement, seed=1)

    assert values.tolist() == expected


def test_clamping_brings_indices_and_probabilities_into_bounds() -> None:
    indices, chances = torch.tensor([-3, 2, 90]), torch.tensor([float("nan"), -1.0, 0.5])

    enforce(indices, Requirement(0, 7))
    enforce(chances, Requirement(0, 1))

    assert indices.tolist() == [0, 2, 7]
    assert chances.tolist() == [0, 0, 0.5]


def test_a_mask_without_entries_is_left_as_it_is() -> None:
    mask = torch.zeros(0, dtype=torch.bool)

    enforce(mask, Requirement(0, 1, total=3))

    assert mask.tolist() == []


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, [[0, 0], [0, 0], [0, 0]]),
        (2, [[1, 0], [1, 0], [0, 0]]),
        (3, [[1, 0], [1, 0], [1, 0]]),
        (4, [[1, 1], [1, 1], [0, 0]]),
        (6, [[1, 1], [1, 1], [1, 1]]),
        (7, [[1, 1], [1, 1], [1, 1]]),
    ],
)
@pytest.mark.parametrize("strides", [(2, 1), (1, 3), (4, 1)])
def test_a_mask_gets_the_required_number_of_true_entries(
    count: int, expected: list[list[int]], strides: tuple[int, int]
) -> None:
    mask = torch.ones(12, dtype=torch.bool)[1:].as_strided((3, 2), strides)

    enforce(mask, Requirement(likely=(0, 1), total=count))

    assert mask.int().tolist() == expected


@pytest.mark.parametrize(
    ("mask", "count", "expected"),
    [
        (torch.tensor([False, True, True, True]), 2, [True, True, False, False]),
        (torch.tensor(False), 1, True),
        (torch.tensor([[True], [True]]).expand(2, 3), 3, [[True] * 3, [False] * 3]),
        (torch.empty(0, 2, dtype=torch.bool), 0, []),
    ],
)
def test_masks_of_any_form_can_be_given_true_entries(
    mask: torch.Tensor, count: int, expected: object
) -> None:
    requirement = Requirement(likely=(0, 1), total=count)

    if not requirement.admits(mask):
        enforce(mask, requirement)

    assert mask.tolist() == expected
    assert requirement.admits(mask)


def test_the_labels_that_are_exempt_stay() -> None:
    labels = torch.tensor([-100, -3, 12])

    enforce(labels, Requirement(0, 9, exempt=-100))

    assert labels.tolist() == [-100, 0, 9]


def test_bounds_are_checked_and_likely_values_are_not() -> None:
    indices = torch.tensor([0, 9])

    assert Requirement(0, 9).admits(indices)
    assert not Requirement(0, 8).admits(indices)
    assert Requirement(likely=(0, 1)).admits(indices)
    assert not Requirement(0, 1).admits(torch.tensor([float("nan")]))
    assert Requirement(total=1).admits(torch.tensor([True, False]))
    assert not Requirement(total=1).admits(torch.tensor([True, True]))


RUNNABLE = [
    embedding(""),
    call(BAG, tensor(8, 4), integers(9), integers(3), False, 0, False, None, False, -1),
    call(BAG, tensor(8, 4), integers(9), integers(4), False, 1, False, None, True, -1),
    call(REMAINDER, integers(3), integers(3)),
    call(NLL, tensor(4, 10), integers(4), None, 1, -100),
    call(REPEAT, integers(4), 10, outputs=[integers(10)]),
    call("aten::multinomial(Tensor self, SymInt num_samples) -> Tensor", tensor(3, 5), 2),
    call(BCE, tensor(3), tensor(3), None, 1),
    call(INDEX_PUT, tensor(1, 4), (integers(2), integers(2)), tensor(2), False, False),
]


@pytest.mark.parametrize("node", RUNNABLE, ids=lambda node: node.name)
def test_operators_that_check_their_values_run(node: Node) -> None:
    run(node)


def test_packed_sequences_have_the_recorded_number_of_rows() -> None:
    node = call(PACK, tensor(5, 3, 2), integers(3), False, outputs=[tensor(11, 2), integers(5)])

    data, batch_sizes = run(node)

    assert (tuple(data.shape), batch_sizes.sum().item()) == ((11, 2), 11)


NONZERO = "aten::nonzero(Tensor self) -> Tensor"


@pytest.mark.parametrize(
    ("rows", "recorded", "expected"),
    [
        ([[0], [1], [2]], (2, 1), [[0], [1]]),
        ([[0], [1]], (5, 1), [[0], [1], [0], [1], [0]]),
        ([[0], [1]], (2, 1), [[0], [1]]),
    ],
)
def test_rows_repeat_or_end_early(
    rows: list[list[int]], recorded: tuple[int, ...], expected: list[list[int]]
) -> None:
    assert conform([integers(*recorded)], torch.tensor(rows)).tolist() == expected


def test_an_empty_result_becomes_zeros() -> None:
    result = conform([integers(2, 3)], torch.empty(0, 3, dtype=torch.int64))

    assert result.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_the_inverse_of_unique_numbers_rows_that_are_there() -> None:
    recorded: list[TensorRef] = [tensor(2), integers(5)]

    values, inverse = conform(recorded, (torch.arange(4.0), torch.tensor([0, 1, 2, 3, 3])))

    assert values.tolist() == [0, 1]
    assert inverse.tolist() == [0, 1, 0, 1, 1]


def test_conformed_results_have_the_recorded_strides() -> None:
    recorded = tensor(3, 2, dtype="long int", itemsize=8, strides=(1, 3))

    assert conform([recorded], torch.zeros(7, 2, dtype=torch.int64)).stride() == (1, 3)
    assert conform([recorded], torch.zeros(3, 2, dtype=torch.int64)).stride() == (1, 3)


def test_results_keep_their_nesting_and_undefined_places() -> None:
    results = conform([integers(1), integers(2)], [None, (torch.zeros(3), 4)])

    assert results[0] is None
    assert (tuple(results[1][0].shape), results[1][1]) == ((2,), 4)


@pytest.mark.parametrize(
    ("trace", "folder"),
    [
        ("x.json", "x_resources"),
        ("x.json.gz", "x_resources"),
        ("x.json.gz", "x.json_resources"),
        ("x.json.gz", "x.json.gz_resources"),
    ],
)
def test_saved_tensors_are_found_beside_compressed_traces(
    tmp_path: Path, trace: str, folder: str
) -> None:
    (tmp_path / folder).mkdir()

    assert resource_folders(tmp_path / trace) == (tmp_path / folder,)


def test_no_folder_of_saved_tensors_is_no_error(tmp_path: Path) -> None:
    assert resource_folders(tmp_path / "x.json") == ()
    assert recorded_integers((), 9, 1, integers(4), None) == (None, "")


@pytest.mark.parametrize(
    ("values", "reference", "doubt"),
    [
        ([0, 1, 2, 3], integers(4), ""),
        ([0, 1, 2, 3], integers(2, 2), ""),
        ([3], integers(), ""),
        ([2533274790395904, 0, 0, 0], integers(4), "has values outside of the valid range"),
        ([0, 1], integers(4), "has 16 bytes, its tensor 32"),
        ([0, 1, 2, 3], tensor(2, 2, dtype="long int", itemsize=8, strides=(1, 2)), "a view"),
        ([0, 1, 2, 3], tensor(4, dtype="long int", itemsize=8, offset=2), "a view"),
        ([0, 1, 2, 3], tensor(8), "belongs to a tensor of type float"),
    ],
)
def test_saved_integers_are_checked_before_they_are_believed(
    tmp_path: Path, values: list[int], reference: TensorRef, doubt: str
) -> None:
    np.array(values, dtype=np.int64).tofile(tmp_path / "nid_9_tid_1.dat")

    found = recorded_integers((tmp_path,), 9, 1, reference, Requirement(0, 3))

    assert doubt in found.doubt
    if doubt:
        assert found.values is None
    else:
        assert found.values is not None
        assert found.values.shape == reference.shape
        assert found.values.flatten().tolist() == values


def test_made_up_lengths_add_up_in_each_row() -> None:
    lengths = torch.empty(2, 3, dtype=torch.int64)

    fill(lengths, Requirement(0, total=5, rows=2), seed=0)

    assert lengths.tolist() == [[2, 2, 1], [2, 2, 1]]


def test_exact_values_are_these() -> None:
    cuts = torch.empty(2, dtype=torch.int64)

    fill(cuts, Requirement(0, 7, exact=(1, 5)), seed=0)

    assert cuts.tolist() == [1, 5]


def test_made_up_matrices_have_a_cholesky_factor() -> None:
    matrices = torch.empty(4, 3, 3)

    fill(matrices, Requirement(matrix=3), seed=0)

    assert torch.linalg.cholesky_ex(matrices).info.tolist() == [0, 0, 0, 0]


def test_complex_numbers_are_left_as_they_are_by_bounds() -> None:
    numbers = torch.tensor([3j, 2])

    enforce(numbers, Requirement(0, 1))

    assert numbers.tolist() == [3j, 2]
