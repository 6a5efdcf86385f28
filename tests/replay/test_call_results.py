"""Arguments in and results out of real operators: undefined, absent, listed, written into."""

from __future__ import annotations

from pathlib import Path

import pytest
from program.programs import program_of
from replay.tiny_traces import call, floats, integers, run, see, values_seen
from trace_builder import UNDEFINED, NodeSpec, T, Typed

from et_replay.program import Mode

MODES = [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE]


def ones(id: int, result: Typed) -> NodeSpec:
    """Return a call that puts float ones into `result`."""
    return call(id, "ones", [result.shape, 6, None, None, False], [result])


def counting(id: int, number: int) -> list[NodeSpec]:
    """Return calls that put [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] into `number`."""
    flat, table = integers(number, 12), integers(number, 3, 4)
    return [
        call(id, "arange", [12, None, None, None, False], [flat]),
        call(id + 1, "view", [flat, [3, 4]], [table]),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_the_result_after_an_undefined_one_is_the_third(tmp_path: Path, mode: Mode) -> None:
    gradient, bias_gradient = floats(11, 3, 4), floats(17, 4)
    mean, deviation, weight = floats(13, 3, 1), floats(14, 3, 1), floats(15, 4)
    inputs = [gradient, floats(12, 3, 4), [4], mean, deviation, weight, floats(16, 4)]

    seen = values_seen(
        tmp_path,
        ones(10, gradient),
        call(
            11,
            "native_layer_norm_backward",
            [*inputs, [True, False, True]],
            [floats(18, 3, 4), UNDEFINED, bias_gradient],
        ),
        see(12, bias_gradient),
        mode=mode,
    )

    assert seen == [[3.0, 3.0, 3.0, 3.0]]


def test_undefined_inputs_are_absent_arguments(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        call(
            10,
            "native_group_norm",
            [floats(11, 2, 4, 3), UNDEFINED, UNDEFINED, 2, 4, 3, 2, 1e-05],
            [floats(12, 2, 4, 3), floats(13, 2, 2), floats(14, 2, 2)],
        ),
    )

    for device in ("cpu", "meta"):
        result = run(program, device=device)
        assert (result.coverage.executed, result.coverage.reasons) == (1, [])


@pytest.mark.parametrize("absent", [None, UNDEFINED])
def test_none_in_a_list_of_indices_keeps_its_place(tmp_path: Path, absent: Typed | None) -> None:
    table, index, columns = integers(11, 3, 4), integers(12, 2), integers(13, 3, 2)

    seen = values_seen(
        tmp_path,
        *counting(10, 11),
        call(12, "zeros_like", [integers(22, 2), None, None, None, None, None], [index]),
        call(13, "index.Tensor", [table, [absent, index]], [columns]),
        see(14, columns),
    )

    assert seen == [[[0, 0], [4, 4], [8, 8]]]


def test_a_list_of_results_is_bound_one_by_one(tmp_path: Path) -> None:
    ins, outs = [integers(11, 2), integers(12, 3)], [integers(13, 2), integers(14, 3)]

    seen = values_seen(
        tmp_path,
        call(10, "_foreach_add.Scalar", [ins, 7], [outs]),
        call(11, "_foreach_add_.Scalar", [[outs[1]], 2], []),
        see(12, outs[1]),
        see(13, outs[0]),
    )

    assert seen == [[9, 9, 9], [7, 7]]


def test_an_optimizer_step_over_lists_with_host_counters_is_executed(tmp_path: Path) -> None:
    weights, first, second = ([floats(n, 2), floats(n + 1, 3)] for n in (11, 21, 31))
    steps = [floats(41, device="cpu"), floats(42, device="cpu")]
    program = program_of(
        tmp_path,
        call(10, "_foreach_add_.Scalar", [steps, 1], []),
        call(11, "_foreach_addcdiv_.ScalarList", [weights, first, second, [0.5, -0.25]], []),
    )

    for device in ("cpu", "meta"):
        result = run(program, device=device, iterations=2)
        assert (result.coverage.executed, result.coverage.reasons) == (2, [])
        assert result.memory.allocated == 6 * 512


@pytest.mark.parametrize("mode", MODES)
def test_an_out_variant_writes_into_what_it_was_given(tmp_path: Path, mode: Mode) -> None:
    one, other, out = integers(11, 2), integers(12, 2), integers(13, 2)

    seen = values_seen(
        tmp_path,
        call(10, "add_.Scalar", [one, 5, 1], [one]),
        call(11, "add.out", [one, other, 1, out], [out]),
        see(12, out),
        mode=mode,
    )

    assert seen == [[5, 5]]


@pytest.mark.parametrize("mode", MODES)
def test_pieces_of_a_split_share_the_storage_of_the_whole(tmp_path: Path, mode: Mode) -> None:
    whole = integers(11, 3, 2)
    rows = [T(20 + row, 11, 2 * row, 2, 8, dtype="long int") for row in range(3)]

    seen = values_seen(
        tmp_path,
        call(10, "unbind.int", [whole, 0], [rows]),
        call(11, "add_.Scalar", [rows[1], 4, 1], [rows[1]]),
        see(12, whole),
        see(13, rows[2]),
        mode=mode,
    )

    assert seen == [[[0, 0], [4, 4], [0, 0]], [0, 0]]


def test_a_conversion_that_returns_its_input_takes_no_memory(tmp_path: Path) -> None:
    x = floats(5, 100)
    program = program_of(
        tmp_path, call(10, "to.dtype", [x, 6, False, False, None], [x]), call(11, "relu_", [x], [x])
    )

    for mode in MODES:
        result = run(program, mode)
        assert (result.memory.allocated, result.coverage.reasons) == (512, [])


def test_a_draw_in_place_does_not_care_what_it_overwrites(tmp_path: Path) -> None:
    mask = floats(12, 3)

    ((first, second, third),) = values_seen(
        tmp_path,
        call(10, "full_like", [floats(11, 3), 7, None, None, None, None, None], [mask]),
        call(11, "bernoulli_.float", [mask, 0.5, Typed("<Generator>", "Generator")], [mask]),
        see(12, mask),
    )

    assert {first, second, third} <= {0.0, 1.0}
