"""What cannot be executed as recorded: substituted, skipped or fatal, each with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import (
    call,
    floats,
    held,
    integers,
    reasons,
    run,
    see,
    seen,
    values_seen,
)
from trace_builder import NodeSpec, T, node, operator

from et_replay.errors import ReplayError
from et_replay.program import Mode, Program, StorageKind

DEVICES = ["cpu", "meta"]
MODES = [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE]
ALLREDUCE = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group,"
    " __torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True,"
    " int timeout=-1) -> (Tensor[], __torch__.torch.classes.c10d.Work)"
)
NOT_IN_COMP = "a collective, which only replay modes comm and full make"


def wrong_product(folder: Path) -> Program:
    """Return relu, then a product of shapes that do not fit, then relu of its result."""
    a, b, c, d = (floats(number, 2, 3) for number in (11, 12, 13, 14))
    return program_of(
        folder,
        call(10, "relu", [a], [b]),
        call(11, "mm", [a, b], [c]),
        call(12, "relu", [c], [d]),
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
def test_an_operator_that_fails_is_substituted_once_and_the_rest_runs(
    tmp_path: Path, mode: Mode, device: str
) -> None:
    result = run(wrong_product(tmp_path), mode, device, warmup=1, iterations=3)

    coverage = result.coverage
    assert (coverage.executed, coverage.substituted, coverage.skipped) == (2, 1, 0)
    assert coverage.total == 3
    ((name, count, outcome, reason),) = reasons(result)
    assert (name, count, outcome) == ("aten::mm", 1, "substituted")
    assert "2x3 and 2x3" in reason or "[2, 3] X [2, 3]" in reason
    assert "\n" not in reason


@pytest.mark.parametrize("device", DEVICES)
def test_skip_counts_what_cannot_run_as_skipped_and_the_rest_runs(
    tmp_path: Path, device: str
) -> None:
    result = run(wrong_product(tmp_path), Mode.LAZY_ALLOCATE, device, on_unsupported="skip")

    coverage = result.coverage
    assert (coverage.executed, coverage.substituted, coverage.skipped) == (2, 0, 1)
    assert reasons(result)[0][:3] == ("aten::mm", 1, "skipped")


@pytest.mark.parametrize("device", DEVICES)
def test_fail_names_the_node_the_operator_and_the_way_out(tmp_path: Path, device: str) -> None:
    with pytest.raises(ReplayError) as caught:
        run(wrong_product(tmp_path), device=device, on_unsupported="fail")

    assert str(caught.value).startswith("Cannot replay node 11 (aten::mm): ")
    assert str(caught.value).endswith("; --on-unsupported substitute goes on without it.")


def test_fail_is_told_before_anything_runs_where_it_can_be_known(tmp_path: Path) -> None:
    program = program_of(tmp_path, operator(10, "nowhere::op", inputs=[floats(11, 2)]))

    with pytest.raises(ReplayError) as caught:
        held(program, on_unsupported="fail")

    assert str(caught.value) == (
        "Cannot replay node 10 (nowhere::op): torch has no operator nowhere::op; --import the"
        " module that registers it; --on-unsupported substitute goes on without it."
    )


def test_a_substituted_operator_leaves_results_of_the_recorded_shape(tmp_path: Path) -> None:
    row, total = T(12, 12, 0, 6, 8, shape=(2, 3), dtype="long int"), integers(13, 2)
    unknown = operator(10, "nowhere::op", inputs=[floats(11, 2)], outputs=[row])
    nodes = [unknown, call(11, "sum.dim_IntList", [row, [1], False, None], [total])]

    result = run(program_of(tmp_path, *nodes, see(12, total)))

    reason = "torch has no operator nowhere::op; --import the module that registers it"
    assert reasons(result) == [("nowhere::op", 1, "substituted", reason)]
    assert result.coverage.executed == 2


def collectives() -> list[NodeSpec]:
    """Return an all-reduce as the observer writes it, which hides record_param_comms."""
    x = floats(11, 300)
    arguments = [[x], "<ProcessGroup>", "<ReduceOp>", None, False, -1]
    return [
        operator(10, "c10d::allreduce_", 2, arguments, [[x], "<Work>"], schema=ALLREDUCE),
        node(11, "record_param_comms", 10, [[x], 0, 1, 0], [[x]]),
        node(12, "record_param_comms", 2, [[floats(12, 300)], 0, 2, 0], [[floats(13, 300)]]),
        call(13, "relu", [x], [floats(14, 300)]),
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
def test_collectives_are_substituted_by_their_effect_on_memory(
    tmp_path: Path, mode: Mode, device: str
) -> None:
    result = run(program_of(tmp_path, *collectives()), mode, device)

    assert reasons(result) == [
        ("c10d::allreduce_", 1, "substituted", NOT_IN_COMP),
        ("record_param_comms", 1, "substituted", NOT_IN_COMP),
    ]
    assert result.coverage.executed == 1
    assert result.memory.allocated == 3 * 1536


def test_inputs_that_only_a_substituted_operator_takes_exist_all_the_same(tmp_path: Path) -> None:
    program = program_of(tmp_path, *collectives())

    replayed = held(program, Mode.PRE_ALLOCATE)

    inputs = [s for s, each in enumerate(program.storages) if each.kind is StorageKind.INPUT]
    assert sorted(replayed._store.live()) == inputs


@pytest.mark.parametrize("device", DEVICES)
def test_a_generated_kernel_is_substituted_where_there_is_no_gpu(
    tmp_path: Path, device: str
) -> None:
    x = floats(11, 300)
    kernel = node(
        10,
        "triton_poi_fused_add_0",
        inputs=[x, floats(12, 300), 300],
        outputs=[],
        kernel_backend="triton",
        kernel_file="cq5.py",
    )

    result = run(
        program_of(tmp_path, kernel, call(11, "relu", [x], [floats(13, 300)])), device=device
    )

    reason = f"a generated triton kernel, which cannot run on {device}"
    assert reasons(result) == [("triton_poi_fused_add_0", 1, "substituted", reason)]


@pytest.mark.parametrize("fill", [0.0, 1.0])
@pytest.mark.parametrize("mode", MODES)
def test_a_result_whose_shape_depends_on_data_gets_the_recorded_shape(
    tmp_path: Path, mode: Mode, fill: float
) -> None:
    mask, found = floats(11, 6), T(12, 12, 0, 3, 8, shape=(3, 1), dtype="long int")
    index, rows = integers(12, 3), floats(14, 3, 2)
    nodes = [
        call(10, "full_like", [floats(15, 6), fill, None, None, None, None, None], [mask]),
        call(11, "nonzero", [mask], [found]),
        call(12, "view", [found, [3]], [index]),
        call(13, "index_select", [floats(13, 6, 2), 0, index], [rows]),
        see(14, index),
    ]

    (seen,) = values_seen(tmp_path, *nodes, mode=mode)

    assert len(seen) == 3
    assert all(0 <= value < 6 for value in seen)


def test_on_meta_a_result_that_depends_on_data_is_substituted(tmp_path: Path) -> None:
    mask, found = floats(11, 6), T(12, 12, 0, 3, 8, shape=(3, 1), dtype="long int")
    program = program_of(
        tmp_path,
        call(10, "nonzero", [mask], [found]),
        call(11, "_local_scalar_dense", [floats(13)], [2.5]),
        call(12, "view", [found, [3]], [integers(12, 3)]),
    )

    result = run(program, device="meta")

    reason = "its result depends on data, and meta tensors have none"
    assert sorted(reasons(result)) == [
        ("aten::_local_scalar_dense", 1, "substituted", reason),
        ("aten::nonzero", 1, "substituted", reason),
    ]
    assert result.coverage.executed == 1


@pytest.mark.parametrize("expanded", [False, True])
def test_an_index_computed_out_of_bounds_is_clamped_and_said_so(
    tmp_path: Path, expanded: bool
) -> None:
    table, zero, far = floats(11, 3, 2), integers(12, 1), integers(13, 1)
    strides = (0,) if expanded else (1,)
    index = T(
        14,
        13,
        0,
        4 if expanded else 1,
        8,
        shape=(4 if expanded else 1,),
        strides=strides,
        dtype="long int",
    )
    count = index.shape[0]
    program = program_of(
        tmp_path,
        call(10, "add.Scalar", [zero, 100, 1], [far]),
        call(11, "expand", [far, [count], False], [index]),
        call(12, "embedding", [table, index, -1, False, False], [floats(15, count, 2)]),
    )

    result = run(program, warmup=1, iterations=2)

    reason = "values that replay computed out of bounds are clamped"
    assert reasons(result) == [("aten::embedding", 1, "executed", reason)]
    assert result.coverage.executed == 3


def test_a_chance_computed_out_of_bounds_is_clamped_as_the_operator_would_fail(
    tmp_path: Path,
) -> None:
    chance = floats(12, 3)
    program = program_of(
        tmp_path,
        call(10, "add.Scalar", [floats(11, 3), 5, 1], [chance]),
        call(11, "bernoulli", [chance, None], [floats(13, 3)]),
    )

    result = run(program, iterations=2)

    reason = "values that replay computed out of bounds are clamped"
    assert reasons(result) == [("aten::bernoulli", 1, "executed", reason)]


def test_floats_that_replay_computed_are_left_alone(tmp_path: Path) -> None:
    x, variance = floats(11, 2, 3), floats(12, 3)
    nodes = [
        call(10, "full_like", [floats(13, 3), 9.0, None, None, None, None, None], [variance]),
        call(
            11,
            "native_batch_norm",
            [x, None, None, floats(14, 3), variance, False, 0.1, 0.5],
            [floats(15, 2, 3), floats(16, 0), floats(17, 0)],
        ),
        see(12, variance),
    ]

    assert values_seen(tmp_path, *nodes, iterations=2) == [[9, 9, 9], [9, 9, 9]]


@pytest.mark.parametrize("mode", MODES)
def test_a_mask_with_another_number_of_true_entries_is_given_the_recorded_one(
    tmp_path: Path, mode: Mode
) -> None:
    mask = T(12, 12, 0, 6, 1, shape=(3, 2), dtype="bool")
    found = T(13, 13, 0, 4, 8, shape=(2, 2), dtype="long int", strides=(1, 2))
    program = program_of(
        tmp_path,
        call(10, "ge.Scalar", [floats(11, 3, 2), 0], [mask]),
        call(11, "nonzero", [mask], [found]),
        see(12, found),
    )

    result = run(program, mode, iterations=3)

    reason = "its mask is given the recorded number of true entries"
    assert reasons(result) == [("aten::nonzero", 1, "executed", reason)]
    assert seen() == [[[0, 0], [1, 0]]] * 3


def test_a_mask_of_more_places_than_there_are_entries_for_is_cut_down(tmp_path: Path) -> None:
    mask = T(12, 12, 0, 4, 1, shape=(4,), dtype="bool")
    program = program_of(
        tmp_path,
        call(10, "ge.Scalar", [floats(11, 4), 0], [mask]),
        call(11, "masked_scatter", [floats(13, 4), mask, floats(14, 3)], [floats(15, 4)]),
        see(12, mask),
    )

    result = run(program)

    assert (result.coverage.executed, result.coverage.substituted) == (3, 0)
    assert seen() == [[True, True, True, False]]


@pytest.mark.parametrize("device", DEVICES)
def test_an_epsilon_recorded_as_zero_is_replaced_and_said_so(tmp_path: Path, device: str) -> None:
    x, weight, bias = floats(11, 2, 4), floats(12, 4), floats(13, 4)
    outputs = [floats(14, 2, 4), floats(15, 2, 1), floats(16, 2, 1)]
    program = program_of(
        tmp_path, call(10, "native_layer_norm", [x, [4], weight, bias, 0.0], outputs)
    )

    reason = "eps was recorded as 0.0, as a trace keeps six decimals, and is replayed as 1e-05"
    assert reasons(run(program, device=device)) == [
        ("aten::native_layer_norm", 1, "executed", reason)
    ]
