"""On a real GPU: the bundled traces execute whole, and memory is measured, limited, given back."""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from program.programs import program_of
from replay.tiny_traces import MIB, call, floats, held, run

from et_replay.commands import main
from et_replay.formats import open_trace
from et_replay.program import Mode, Program, build_program
from et_replay.replay.result import LiveStorage

pytestmark = pytest.mark.cuda

PRE, LAZY = Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE
MODES = [PRE, LAZY]
TRACES = Path(__file__).resolve().parents[2] / "traces"
BUNDLED = ["convnet_cuda", "moe_cuda", "transformer_cuda"]


@pytest.fixture(autouse=True)
def an_empty_device() -> Iterator[None]:
    """Give back cached blocks and what other tests left, and lift the last replay's limit."""
    gc.collect()
    yield
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)


@cache
def bundled(name: str) -> Program:
    return build_program(open_trace(TRACES / f"{name}.json.gz"))


def concatenation(folder: Path) -> Program:
    """Return cat(a, b) of 512 and 256 MiB into 768."""
    a, b, both = (floats(n, size * MIB // 4) for n, size in ((11, 512), (12, 256), (13, 768)))
    return program_of(folder, call(10, "cat", [[a, b], 0], [both]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BUNDLED)
def test_every_operation_of_a_bundled_trace_executes(name: str, mode: Mode) -> None:
    result = run(bundled(name), mode, "cuda", warmup=1, iterations=2)

    assert result.coverage.executed == result.coverage.total == len(bundled(name).operations)
    assert result.out_of_memory is None
    assert (result.device, result.simulated) == ("cuda:0", False)
    assert all(time > 0 for time in result.iteration_times)


@pytest.mark.parametrize("name", BUNDLED)
def test_lazy_measures_no_higher_peak_than_pre(name: str) -> None:
    pre = run(bundled(name), PRE, "cuda", warmup=1)
    lazy = run(bundled(name), LAZY, "cuda", warmup=1)

    assert 0 < lazy.memory.allocated <= pre.memory.allocated


@pytest.mark.parametrize("mode", MODES)
def test_tensors_alone_measure_what_the_simulation_says(tmp_path: Path, mode: Mode) -> None:
    before = torch.cuda.memory_allocated()

    measured = run(concatenation(tmp_path), mode, "cuda", warmup=1, iterations=2)
    simulated = run(concatenation(tmp_path), mode, "meta")

    assert measured.memory.allocated - before == simulated.memory.allocated == 1536 * MIB


@pytest.mark.parametrize("name", BUNDLED)
def test_a_low_threshold_flushes_and_the_replay_completes(name: str) -> None:
    lazy = run(bundled(name), LAZY, "cuda", warmup=1)
    capacity = 4 * lazy.memory.allocated

    result = run(
        bundled(name),
        LAZY,
        "cuda",
        warmup=1,
        device_memory=capacity,
        device_memory_threshold=0.1,
    )

    assert result.out_of_memory is None
    assert result.coverage.executed == result.coverage.total
    assert result.flushes.count > 0
    assert 0 < result.flushes.recreated <= result.flushes.freed


@pytest.mark.parametrize("name", BUNDLED)
def test_a_device_memory_below_the_peak_ends_out_of_memory_and_the_next_replay_runs(
    name: str,
) -> None:
    peak = run(bundled(name), PRE, "cuda", warmup=1).memory.allocated
    torch.cuda.empty_cache()

    failed = run(bundled(name), PRE, "cuda", warmup=1, device_memory=peak - 8 * MIB)
    again = run(bundled(name), PRE, "cuda", warmup=1)

    assert failed.out_of_memory is not None
    assert failed.out_of_memory.capacity == peak - 8 * MIB
    assert failed.out_of_memory.requested > 0
    assert again.out_of_memory is None


def test_out_of_memory_names_the_operation_its_request_and_what_is_live(tmp_path: Path) -> None:
    result = run(concatenation(tmp_path), PRE, "cuda", device_memory=1024 * MIB)

    error = result.out_of_memory
    assert error is not None
    assert (error.node_id, error.operator) == (10, "aten::cat")
    assert (error.requested, error.capacity) == (768 * MIB, 1024 * MIB)
    assert result.live == [
        LiveStorage(512 * MIB, "input", "", 10),
        LiveStorage(256 * MIB, "input", "", 10),
    ]


def test_out_of_memory_leaves_the_state_of_the_device_with_every_block_named(
    tmp_path: Path,
) -> None:
    result = run(concatenation(tmp_path), PRE, "cuda", device_memory=1024 * MIB)

    error, history = result.out_of_memory, result.at_failure
    assert error is not None
    assert history is not None
    assert history.events.size.tolist() == [768 * MIB]
    live = [b for s in history.segments for b in s.blocks if b.storage >= 0]
    assert sum(block.size for block in live) == error.allocated
    assert sum(segment.size for segment in history.segments) == error.reserved
    sizes = [b.size for b in live if history.origins[b.storage].maker == "input of aten::cat"]
    assert sorted(sizes) == [256 * MIB, 512 * MIB]


def test_inputs_that_do_not_fit_are_out_of_memory_before_the_first_operation(
    tmp_path: Path,
) -> None:
    torch.cuda.empty_cache()  # what other tests left for good, such as workspaces, counts too
    limit = torch.cuda.memory_reserved() + 600 * MIB

    result = run(concatenation(tmp_path), PRE, "cuda", device_memory=limit)

    error = result.out_of_memory
    assert error is not None
    assert (error.node_id, error.operator) == (None, None)
    assert error.requested == 256 * MIB
    assert result.live == [LiveStorage(512 * MIB, "input", "", 10)]


def test_after_running_out_of_memory_the_result_holds_none_of_it(tmp_path: Path) -> None:
    before = torch.cuda.memory_allocated()

    result = run(concatenation(tmp_path), PRE, "cuda", device_memory=1024 * MIB)

    assert result.out_of_memory is not None
    assert torch.cuda.memory_allocated() == before


def test_the_limit_of_one_replay_does_not_bind_what_runs_after_it(tmp_path: Path) -> None:
    run(concatenation(tmp_path), LAZY, "cuda", device_memory=1024 * MIB)

    assert torch.empty(1200 * MIB, dtype=torch.uint8, device="cuda").numel() == 1200 * MIB


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BUNDLED)
def test_five_iterations_leave_as_much_allocated_as_one(name: str, mode: Mode) -> None:
    run(bundled(name), mode, "cuda")  # cuBLAS takes its workspace once and keeps it.
    left = []
    for iterations in (1, 5):
        replayed = held(bundled(name), mode, "cuda", iterations=iterations)
        left.append(torch.cuda.memory_allocated())
        del replayed

    assert left[0] == left[1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BUNDLED)
def test_the_peaks_do_not_depend_on_the_number_of_iterations(name: str, mode: Mode) -> None:
    one, five = (run(bundled(name), mode, "cuda", warmup=1, iterations=n) for n in (1, 5))

    assert one.memory.allocated == five.memory.allocated


def test_reserved_counts_nothing_that_an_earlier_replay_left_cached(tmp_path: Path) -> None:
    small = program_of(tmp_path, call(10, "relu", [floats(1, 1024)], [floats(2, 1024)]))

    run(concatenation(tmp_path), PRE, "cuda")
    result = run(small, PRE, "cuda")

    assert result.memory.reserved < 768 * MIB


def test_an_out_of_memory_is_explained_as_on_a_simulated_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    concatenation(tmp_path)
    trace, file = str(tmp_path / "trace.json"), tmp_path / "result.json"

    words = ["--trace", trace, "--device", "cuda", "--device-memory", "1GiB"]
    assert main([*words, "--json", str(file)]) == 3

    (result,) = json.loads(file.read_text())["results"]
    failure, explanation = result["out_of_memory"], result["explanation"]
    for name in ("requested_bytes", "allocated_bytes", "reserved_bytes", "largest_free_bytes"):
        assert explanation["failure"][name] == failure[name], name
    assert failure["requested_bytes"] == 768 * MIB
    assert (failure["node_id"], failure["operator"]) == (10, "aten::cat")
    assert (explanation["failure"]["node_id"], explanation["failure"]["operator"]) == (
        10,
        "aten::cat",
    )
    assert sum(each["bytes"] for each in explanation["classes"]) == failure["allocated_bytes"]
    assert {"class": "other inputs", "bytes": 768 * MIB} in explanation["classes"]
    assert result["way_out"]
    out = capsys.readouterr().out
    assert "Out of memory: a request of 768 MiB does not fit" in out
    assert "It failed at node 10, in aten::cat" in out


@pytest.mark.parametrize("words", [["--page", "page.html"], ["--explain", "peak"]])
def test_what_only_a_simulated_device_can_do_is_refused_before_the_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    concatenation(tmp_path)
    words = [str(tmp_path / word) if word == "page.html" else word for word in words]

    assert main(["--trace", str(tmp_path / "trace.json"), "--device", "cuda", *words]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "is simulated, which cuda:0 is not: use --device cpu or --device meta." in err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", BUNDLED)
def test_every_operation_is_in_a_class_with_times(name: str) -> None:
    times = run(bundled(name), PRE, "cuda", warmup=1).operation_times

    assert sum(each.operations for each in times) == len(bundled(name).operations)
    assert all(len(each.times) == 3 for each in times)


def test_the_times_of_all_classes_add_up_to_an_iteration(tmp_path: Path) -> None:
    a, b, c, d = (floats(number, 8192, 8192) for number in (11, 12, 13, 14))
    long_kernels = call(10, "mm", [a, b], [c]), call(11, "relu", [c], [d])

    result = run(program_of(tmp_path, *long_kernels), PRE, "cuda", warmup=1, iterations=3)

    total = sum(each.median for each in result.operation_times)
    assert 0.5 < total / statistics.median(result.iteration_times) < 1.5


@pytest.mark.parametrize("mode", MODES)
def test_taking_times_changes_neither_the_peaks_nor_the_iterations(mode: Mode) -> None:
    name = "moe_cuda"

    without = run(bundled(name), mode, "cuda", warmup=1, operator_times=False)
    timed = run(bundled(name), mode, "cuda", warmup=1)

    assert without.operation_times == ()
    assert timed.operation_times != ()
    assert len(timed.iteration_times) == len(without.iteration_times) == 1
    assert timed.memory.allocated == without.memory.allocated
