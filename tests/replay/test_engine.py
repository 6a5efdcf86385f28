"""What a replay does to values, iteration after iteration, and the memory figures it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import MIB, call, floats, held, integers, run, see, values_seen
from trace_builder import T, Typed, mark, operator

from et_replay.program import Mode, Program

PRE, LAZY = Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE
MODES = [PRE, LAZY]


def product(folder: Path) -> Program:
    """Return relu(a @ b) over 100 x 100 floats: 40000 bytes each, blocks of 40448."""
    a, b, c, d = (floats(number, 100, 100) for number in (11, 12, 13, 14))
    return program_of(folder, call(10, "mm", [a, b], [c]), call(11, "relu", [c], [d]))


@pytest.mark.parametrize("mode", MODES)
def test_writing_one_half_of_an_input_storage_leaves_the_other_half(
    tmp_path: Path, mode: Mode
) -> None:
    left, right = T(2, 9, 0, 4, 8, dtype="long int"), T(3, 9, 4, 4, 8, dtype="long int")

    seen = values_seen(
        tmp_path,
        call(10, "add_.Scalar", [left, 7, 1], [left]),
        see(11, left),
        see(12, right),
        call(13, "add_.Scalar", [right, 5, 1], [right]),
        see(14, left),
        see(15, right),
        mode=mode,
    )

    assert seen == [[7] * 4, [0] * 4, [7] * 4, [5] * 4]


def test_the_settings_of_the_job_are_in_force_while_operators_run(tmp_path: Path) -> None:
    modes: list[int] = []
    library = torch.library.Library("et_replay_test_settings", "DEF")
    library.define("look(Tensor self) -> ()")
    library.impl(
        "look",
        lambda _: modes.append(torch.get_deterministic_debug_mode()),
        "CompositeExplicitAutograd",
    )
    name = "et_replay_test_settings::look"
    node = operator(10, name, 2, [floats(13, 2)], schema=f"{name}(Tensor self) -> ()")
    settings = {"deterministic_debug_mode": "error"}
    result = run(program_of(tmp_path, node), torch_settings=settings, warmup=0, iterations=2)
    assert modes == [2, 2]
    assert result.torch_settings == settings
    assert torch.get_deterministic_debug_mode() == 0


def test_an_operator_that_is_not_deterministic_runs_as_the_job_must_have_run_it(
    tmp_path: Path,
) -> None:
    whole, indices = integers(13, 4), integers(12, 2)
    nodes = (
        call(9, "fill_.Scalar", [whole, 5], [whole]),
        call(10, "put_", [whole, indices, integers(14, 2), False], [whole]),
        call(11, "add_.Scalar", [whole, 1, 1], [whole]),
    )
    strict = run(program_of(tmp_path, *nodes), torch_settings={"deterministic_debug_mode": "error"})
    assert (strict.coverage.executed, strict.coverage.reasons) == (3, [])


@pytest.mark.parametrize("mode", MODES)
def test_another_view_of_an_input_sees_what_was_written_long_before(
    tmp_path: Path, mode: Mode
) -> None:
    whole = T(2, 9, 0, 6, 8, dtype="long int", shape=(2, 3))
    row = T(3, 9, 3, 3, 8, dtype="long int")

    seen = values_seen(
        tmp_path,
        call(10, "add_.Scalar", [whole, 7, 1], [whole]),
        call(11, "relu", [floats(21, 2)], [floats(22, 2)]),
        see(12, row),
        mode=mode,
    )

    assert seen == [[7, 7, 7]]


@pytest.mark.parametrize("mode", MODES)
def test_a_result_that_later_calls_see_in_another_shape_keeps_its_values(
    tmp_path: Path, mode: Mode
) -> None:
    six, two_by_three = T(3, 4, 0, 6, 4), T(3, 4, 0, 6, 4, shape=(2, 3))

    seen = values_seen(
        tmp_path,
        call(10, "full_like", [floats(21, 6), 7, None, None, None, None, None], [six]),
        call(11, "relu", [floats(22, 2)], [floats(23, 2)]),
        see(12, two_by_three),
        mode=mode,
    )

    assert seen == [[[7.0] * 3] * 2]


@pytest.mark.parametrize(
    ("mode", "right"), [(PRE, [[1], [2], [3], [4]]), (LAZY, [[1], [1], [1], [1]])]
)
def test_in_place_changes_of_an_input_stay_in_pre_and_start_afresh_in_lazy(
    tmp_path: Path, mode: Mode, right: list[list[int]]
) -> None:
    count = integers(9, 1)

    seen = values_seen(
        tmp_path,
        call(10, "add_.Scalar", [count, 1, 1], [count]),
        see(11, count),
        mode=mode,
        warmup=1,
        iterations=3,
    )

    assert seen == right


def test_one_seed_gives_the_same_values_and_another_seed_others(tmp_path: Path) -> None:
    noise, weight = floats(11, 32), floats(12, 32)
    program = program_of(
        tmp_path,
        call(10, "uniform_", [noise, 0.0, 1.0, None], [noise]),
        call(11, "add_.Tensor", [weight, noise, 1], [weight]),
    )

    def final_weight(seed: int) -> torch.Tensor:
        replayed = held(program, iterations=2, seed=seed)
        (slot,) = (i for i, tensor in enumerate(program.tensors) if tensor.storage == 1)
        value = replayed._store.slots[slot]
        assert isinstance(value, torch.Tensor)
        return value

    assert torch.equal(final_weight(5), final_weight(5))
    assert not torch.equal(final_weight(5), final_weight(6))


def test_every_iteration_draws_the_same_random_numbers(tmp_path: Path) -> None:
    noise = floats(11, 8)

    first, second, third = values_seen(
        tmp_path,
        call(10, "rand", [[8], 6, None, None, False], [noise]),
        see(11, noise),
        iterations=3,
    )

    assert first == second == third


def test_an_index_that_grows_with_each_iteration_stays_in_bounds(tmp_path: Path) -> None:
    table, position = floats(11, 1000, 2), integers(12, 1)
    program = program_of(
        tmp_path,
        call(10, "add_.Scalar", [position, 100, 1], [position]),
        call(11, "embedding", [table, position, -1, False, False], [floats(13, 1, 2)]),
    )

    assert run(program).coverage.reasons == []
    assert run(program, iterations=25).coverage.executed == 2


@pytest.mark.parametrize("name", ["max", "sort"])
def test_a_sorted_index_that_grows_with_each_iteration_stays_in_bounds(
    tmp_path: Path, name: str
) -> None:
    table, position, largest = floats(11, 1000, 2), integers(12, 1), integers(14, 1)
    inputs = {"max": [position, 0, True], "sort": [position, 0, False]}[name]
    program = program_of(
        tmp_path,
        call(10, "add_.Scalar", [position, 100, 1], [position]),
        call(11, {"max": "max.dim", "sort": "sort"}[name], inputs, [largest, integers(15, 1)]),
        call(12, "embedding", [table, largest, -1, False, False], [floats(13, 1, 2)]),
    )

    assert run(program).coverage.reasons == []
    assert run(program, iterations=25).coverage.executed == 3


def test_an_operator_that_fails_only_in_a_later_iteration_does_not_end_the_replay(
    tmp_path: Path,
) -> None:
    count, factor, eye, scaled = integers(11, 1), floats(12, 1), floats(13, 2, 2), floats(14, 2, 2)
    root = T(15, 15, 0, 4, 4, shape=(2, 2), strides=(1, 2))
    program = program_of(
        tmp_path,
        call(10, "add_.Scalar", [count, 1, 1], [count]),
        call(11, "rsub.Scalar", [count, 2.5, 1], [factor]),
        call(12, "eye", [2, 6, None, None, False], [eye]),
        call(13, "mul.Tensor", [eye, factor], [scaled]),
        call(14, "linalg_cholesky", [scaled, False], [root]),
    )

    assert run(program, iterations=2).coverage.reasons == []
    assert run(program, iterations=3).coverage.total == 5


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("mode", MODES)
def test_1_2_and_25_iterations_give_the_same_memory_figures(
    tmp_path: Path, mode: Mode, device: str
) -> None:
    program = product(tmp_path)

    one, two, many = (run(program, mode, device, iterations=count) for count in (1, 2, 25))

    assert one.memory == two.memory == many.memory
    assert [len(each.iteration_times) for each in (one, two, many)] == [1, 2, 25]
    assert all(time > 0 for time in many.iteration_times)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("warmup", [0, 2])
def test_the_peak_is_the_sum_of_the_blocks_that_live_at_once(
    tmp_path: Path, device: str, warmup: int
) -> None:
    program = product(tmp_path)

    pre = run(program, PRE, device, warmup=warmup).memory
    lazy = run(program, LAZY, device, warmup=warmup).memory

    block = 79 * 512
    assert (pre.allocated, pre.active, pre.reserved) == (4 * block, 4 * block, 2 * MIB)
    assert (lazy.allocated, lazy.active, lazy.reserved) == (3 * block, 3 * block, 2 * MIB)


@pytest.mark.parametrize(("workspace", "rounded"), [(0, 0), (1000, 1024), (32 * MIB, 32 * MIB)])
@pytest.mark.parametrize("mode", MODES)
def test_a_library_workspace_adds_exactly_its_block(
    tmp_path: Path, mode: Mode, workspace: int, rounded: int
) -> None:
    program = product(tmp_path)

    without = run(program, mode, "meta")
    result = run(program, mode, "meta", library_workspace=workspace)

    assert result.memory.allocated == without.memory.allocated + rounded
    assert result.library_workspace == workspace


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("mode", MODES)
def test_host_tensors_of_a_gpu_trace_are_not_in_the_figures(
    tmp_path: Path, mode: Mode, device: str
) -> None:
    host, copy = floats(11, 1000, device="cpu"), floats(12, 1000)
    to = [host, 6, None, Typed("cuda:0", "Device"), None, False, None]
    program = program_of(
        tmp_path, call(10, "_to_copy", to, [copy]), call(11, "relu_", [copy], [copy])
    )

    assert run(program, mode, device).memory.allocated == 4096


def test_a_temporary_that_dies_before_the_result_is_born_counts_at_the_peak(tmp_path: Path) -> None:
    x, scratch, y = floats(11, 128), floats(12, 256), floats(13, 128)
    program = program_of(
        tmp_path,
        call(10, "relu", [x], [y]),
        call(11, "empty_like", [x, None, None, None, None, None], [scratch], parent=10),
    )

    assert run(program, PRE, "meta").memory.allocated == 512 + 1024


def test_a_window_without_operators_takes_nothing(tmp_path: Path) -> None:
    program = program_of(tmp_path, mark(10, "ProfilerStep#1"))

    result = run(program, LAZY)

    assert (result.coverage.total, result.memory.reserved) == (0, 0)


def test_progress_tells_operations_done_and_to_do(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    run(product(tmp_path), progress=lambda *both: told.append(both), warmup=1, iterations=2)

    assert told == [(2, 6), (4, 6), (6, 6)]
