"""What torch would call, over a CUDA driver that is none: `fake_cuda.cpp`, each in its process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake_cuda.cpp"
ROOT = Path(__file__).parents[2]
PRELUDE = """
import ctypes
from ctypes import CFUNCTYPE, c_char_p, c_int, c_size_t, c_uint64, c_void_p, cast
import numpy as np
from et_replay import _core

MIB = 2**20
driver = ctypes.CDLL("libcuda.so.1")
driver.fake_used.restype = driver.fake_ranges.restype = driver.fake_events.restype = c_size_t
driver.fake_try_alloc.restype = c_void_p
driver.fake_try_alloc.argtypes = [c_void_p, c_size_t, c_int, c_void_p, c_char_p, c_size_t]
driver.fake_error_type.restype = c_char_p
driver.fake_set_total.argtypes = [c_size_t]
driver.fake_set_busy.argtypes = [c_void_p, c_int]
driver.fake_begin_pool.argtypes = [c_void_p, c_uint64, c_void_p]
driver.fake_call_pool.argtypes = [c_void_p, c_uint64]
library = ctypes.CDLL(_core.__file__)
library.et_replay_free.argtypes = [c_void_p, c_size_t, c_int, c_void_p]
library.et_replay_record_stream.argtypes = [c_void_p, c_void_p]

def alloc(size, stream=0, device=0):
    text = ctypes.create_string_buffer(2000)
    pointer = driver.fake_try_alloc(
        cast(library.et_replay_alloc, c_void_p), size, device, stream, text, len(text)
    )
    if pointer is None:
        raise RuntimeError(text.value.decode())
    return pointer

def free(pointer, size=0, stream=0, device=0):
    library.et_replay_free(pointer, size, device, stream)

def stat(name, device=0):
    return _core.pluggable_stats(device)[name]

def refused(size, **where):
    try:
        alloc(size, **where)
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it was served")

def install(allocator="native", **more):
    _core.pluggable_install(allocator, torch_version="2.11", **more)
"""

Run = Callable[[str], None]


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("neither g++ nor clang++ is installed")
    folder = tmp_path_factory.mktemp("driver")
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    target = str(folder / "libcuda.so.1")
    subprocess.run([*command, "-pthread", str(FAKE), "-o", target], check=True)
    return folder


@pytest.fixture
def run(fake_driver: Path) -> Run:
    """Return what runs a program, after PRELUDE, where the fake driver is the driver."""

    def run(program: str) -> None:
        check = "\nassert driver.fake_wrong_calls() == 0\nprint('done')\n"
        outcome = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program) + check],
            capture_output=True,
            text=True,
            env=os.environ | {"LD_LIBRARY_PATH": str(fake_driver), "PYTHONPATH": str(ROOT)},
        )
        assert outcome.returncode == 0, outcome.stderr
        assert outcome.stdout == "done\n"

    return run


def test_without_a_driver_it_says_so() -> None:
    program = "from et_replay import _core; _core.pluggable_install('native')"
    outcome = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if outcome.returncode == 0:
        pytest.skip("there is a driver")
    assert "No CUDA driver was found: libcuda.so.1" in outcome.stderr


def test_it_serves_as_the_simulated_allocator_does(run: Run) -> None:
    run("""
        install()
        simulation = _core.Simulation(8 << 30, allocator="native", torch_version="2.11")
        sizes = [700, 3 * MIB, 12 * MIB, 5, 2 * MIB, 300 * MIB, 40000]
        pointers = [alloc(size) for size in sizes]
        for storage, size in enumerate(sizes):
            simulation.allocate(storage, size)
        assert all(pointer % 512 == 0 for pointer in pointers)
        for storage in (1, 4, 5):
            free(pointers[storage], sizes[storage])
            simulation.free(storage)
        assert _core.pluggable_stats(0) == simulation.memory_stats()
        assert stat("reserved_bytes.all.current") == driver.fake_used()
        _core.pluggable_empty_cache(0)
        simulation.empty_cache()
        assert _core.pluggable_stats(0) == simulation.memory_stats()
        assert stat("reserved_bytes.all.current") == driver.fake_used()
        assert len(_core.pluggable_segments(0)) == stat("segment.all.current")
    """)


def test_expandable_segments_are_mapped_and_given_back(run: Run) -> None:
    run("""
        install("expandable")
        simulation = _core.Simulation(8 << 30, allocator="expandable", torch_version="2.11")
        for _ in range(3):
            pointers = [alloc(size * MIB) for size in (1, 30, 70, 5)]
            for storage, size in enumerate((1, 30, 70, 5)):
                simulation.allocate(storage, size * MIB)
            free(pointers[1])
            simulation.free(1)
            assert _core.pluggable_stats(0) == simulation.memory_stats()
            assert stat("reserved_bytes.all.current") == driver.fake_used()
            for storage in (0, 2, 3):
                free(pointers[storage])
                simulation.free(storage)
            _core.pluggable_empty_cache(0)
            simulation.empty_cache()
            assert _core.pluggable_stats(0) == simulation.memory_stats()
            assert driver.fake_used() == 0
            assert driver.fake_ranges() == 0
    """)


def test_the_limit_is_a_wall_and_the_error_names_it(run: Run) -> None:
    run("""
        install(device_memory=100 * MIB)
        first = alloc(60 * MIB)
        text = refused(60 * MIB)
        assert text.startswith("CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 is limited"
                               " to 100.00 MiB of which 40.00 MiB is free."), text
        assert text.endswith("is reserved by PyTorch but unallocated."), text
        failure, segments = _core.pluggable_last_failure(0)
        assert [size for size, requested, storage, _ in segments[0][5]] == [60 * MIB]
        assert (failure.requested, failure.allocated) == (60 * MIB, 60 * MIB)
        assert failure.capacity == 100 * MIB
        free(first)
        assert alloc(90 * MIB)
        assert stat("num_ooms") == 1
    """)


@pytest.mark.parametrize("allocator", ["native", "expandable"])
def test_a_full_device_is_out_of_memory(run: Run, allocator: str) -> None:
    run(f"""
        install("{allocator}")
        driver.fake_set_total(200 * MIB)
        first = alloc(100 * MIB)
        text = refused(140 * MIB)
        assert text.startswith("CUDA out of memory. Tried to allocate 140.00 MiB. GPU 0 has a total"
                               " capacity of "), text
        free(first)
        assert alloc(140 * MIB)
        assert driver.fake_used() == stat("reserved_bytes.all.current")
    """)


def test_torch_gets_its_own_error_where_it_is_known(run: Run) -> None:
    run("""
        said = []
        thrower = CFUNCTYPE(None, c_char_p)(said.append)
        _core.pluggable_throw_out_of_memory_by(cast(thrower, c_void_p).value)
        install(device_memory=2 * MIB)
        text = refused(4 * MIB)
        assert said == [text.encode()]
    """)


def test_torchs_own_error_is_built_where_a_compiler_is(run: Run, tmp_path: Path) -> None:
    run(f"""
        import tempfile
        from pathlib import Path
        from et_replay.pluggable import out_of_memory_thrower

        tempfile.tempdir = {str(tmp_path)!r}
        for _ in range(2):
            _core.pluggable_throw_out_of_memory_by(out_of_memory_thrower())
        install(device_memory=2 * MIB)
        text = refused(4 * MIB)
        assert text.startswith("CUDA out of memory. Tried to allocate 20.00 MiB. "), text
        assert driver.fake_error_type() == b"N3c1016OutOfMemoryErrorE"
        (folder,) = Path(tempfile.tempdir).iterdir()
        assert len(list(folder.iterdir())) == 1
        folder.chmod(0o777)
        assert out_of_memory_thrower() is None, "others could have written there"
    """)


AS_IF_TORCH_HAD_CUDA = """
        import torch
        from et_replay import pluggable
        from et_replay.errors import UsageError

        class Native:
            def __init__(self):
                self.told = []
            def __getattr__(self, name):
                if name == "set_release_pool":
                    raise AttributeError("this torch has no pools")
                return lambda address: self.told.append(name)

        native = Native()
        torch._C._cuda_customAllocator = lambda alloc, free: native
        torch._C._cuda_changeCurrentAllocator = lambda allocator: None
        torch.cuda._utils._get_device_index = lambda device, optional: device or 0
        pluggable.out_of_memory_thrower = lambda: None
"""


def test_torchs_figures_of_memory_are_ours(run: Run) -> None:
    run(
        AS_IF_TORCH_HAD_CUDA
        + """
        pluggable.install("native", 100 * MIB)
        assert pluggable.is_installed()
        assert "set_record_stream_fn" in native.told
        assert torch.cuda.memory_allocated() == 0 == torch.cuda.memory_allocated(0)
        assert pluggable.statistics() is None
        free(alloc(30 * MIB))
        alloc(4 * MIB)
        assert torch.cuda.memory_allocated(0) == 4 * MIB
        assert torch.cuda.max_memory_allocated(0) == 30 * MIB
        assert torch.cuda.memory_reserved(0) == 30 * MIB
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated(0) == 4 * MIB
        assert torch.cuda.memory.memory_stats(0)["segment.all.current"] == 1
        assert pluggable.statistics().allocated_bytes == 4 * MIB
        assert pluggable.plan_figures() is None and pluggable.last_failure() is None
        refused(200 * MIB)
        error, segments = pluggable.last_failure()
        assert (error.requested, len(segments[0].blocks)) == (200 * MIB, 2)
        assert "Allocated memory" in torch.cuda.memory_summary(0)
    """
    )


def test_a_torch_that_takes_no_allocator_is_told(run: Run) -> None:
    run(
        AS_IF_TORCH_HAD_CUDA
        + """
        def refuse(allocator):
            raise RuntimeError("Can't swap an already initialized allocator")

        torch._C._cuda_changeCurrentAllocator = refuse
        for allocator, said in (("native", "before the first use"), ("other", "among native")):
            try:
                pluggable.install(allocator)
            except UsageError as error:
                assert said in str(error), error
            else:
                raise AssertionError("it was installed")
            assert not pluggable.is_installed()
    """
    )


def test_cudnn_benchmark_is_turned_off_and_stays_off_with_a_warning(run: Run) -> None:
    run(
        AS_IF_TORCH_HAD_CUDA
        + """
        import warnings
        torch.backends.cudnn.benchmark = True
        with warnings.catch_warnings(record=True) as said:
            pluggable.install("native")
            torch.backends.cudnn.benchmark = True
            with torch.backends.cudnn.flags(benchmark=True):
                assert not torch.backends.cudnn.benchmark
        assert all("cudnn.benchmark stays off" in str(each.message) for each in said)
        assert len(said) >= 2
        assert not torch.backends.cudnn.benchmark
    """
    )


def test_a_block_waits_for_the_streams_that_used_it(run: Run) -> None:
    run("""
        install()
        first = alloc(30 * MIB)
        library.et_replay_record_stream(first, 7)
        library.et_replay_record_stream(first, 7)
        library.et_replay_record_stream(first, 0)
        driver.fake_set_busy(7, 1)
        free(first)
        assert stat("allocated_bytes.all.current") == 0
        assert stat("active_bytes.all.current") == 30 * MIB
        second = alloc(30 * MIB)
        assert second != first
        driver.fake_set_busy(7, 0)
        third = alloc(30 * MIB)
        assert third == first
        assert driver.fake_events() == 1
        library.et_replay_record_stream(third, 7)
        free(third)
        alloc(1)
        assert driver.fake_events() == 1, "events are used again"
        assert stat("active_bytes.all.current") == 30 * MIB + 512
    """)


def test_blocks_of_other_streams_are_not_given_out(run: Run) -> None:
    run("""
        install()
        first = alloc(30 * MIB, stream=5)
        free(first)
        assert alloc(30 * MIB, stream=6) != first
        assert alloc(30 * MIB, stream=5) == first
    """)


def test_out_of_memory_waits_for_the_streams_first(run: Run) -> None:
    run("""
        install(device_memory=50 * MIB)
        first = alloc(30 * MIB)
        library.et_replay_record_stream(first, 7)
        driver.fake_set_busy(7, 1)
        free(first)
        before = driver.fake_synchronizations()
        assert alloc(40 * MIB)
        assert driver.fake_synchronizations() == before + 1
    """)


def test_what_a_graph_captures_has_a_pool_of_its_own(run: Run) -> None:
    run("""
        install()
        begin, end, release = (
            cast(getattr(library, f"et_replay_{verb}_pool"), c_void_p)
            for verb in ("begin", "end", "release")
        )
        for pool in (1, 1, 2):
            driver.fake_begin_pool(begin, pool, 9)
            inside = alloc(30 * MIB, stream=9)
            outside = alloc(30 * MIB, stream=4)
            library.et_replay_record_stream(inside, 4)
            driver.fake_set_busy(4, 1)
            events = driver.fake_events()
            free(inside)
            free(alloc(1, stream=9))
            assert driver.fake_events() == events, "a capture has no events"
            free(outside)
            driver.fake_call_pool(end, pool)
            other = alloc(30 * MIB, stream=9)
            assert other != inside
            assert driver.fake_events() > 0
            driver.fake_set_busy(4, 0)
            free(other)
        for pool in (1, 1, 2):
            _core.pluggable_empty_cache(0)
            assert driver.fake_used() >= 30 * MIB
            driver.fake_call_pool(release, pool)
        _core.pluggable_empty_cache(0)
        assert driver.fake_used() == 0
    """)


def test_what_a_stream_asks_for_past_its_capture_is_not_of_the_pool(run: Run) -> None:
    run("""
        install()
        begin = cast(library.et_replay_begin_pool, c_void_p)
        driver.fake_begin_pool(begin, 1, 9)
        first = alloc(30 * MIB, stream=9)
        free(first)
        driver.fake_set_capture_lasts(0)
        assert alloc(30 * MIB, stream=9) != first
        driver.fake_set_capture_lasts(1)
        assert alloc(30 * MIB, stream=9) == first
    """)


def test_threads_get_memory_of_their_own(run: Run) -> None:
    run("""
        install()
        functions = (library.et_replay_alloc, library.et_replay_free)
        assert driver.fake_hammer(*(cast(it, c_void_p) for it in functions), 8, 3000) == 0
        assert stat("allocated_bytes.all.current") == 0
        assert stat("active.all.current") == 0
        assert stat("allocation.all.allocated") == 24000
        _core.pluggable_empty_cache(0)
        assert driver.fake_used() == 0
    """)


def test_each_device_has_its_own_state(run: Run) -> None:
    run("""
        install()
        assert _core.pluggable_stats(1) == {}
        alloc(30 * MIB, device=1)
        assert _core.pluggable_stats(0) == {}
        assert stat("allocated_bytes.all.current", 1) == 30 * MIB
        assert "CUDA_ERROR_INVALID_DEVICE" in refused(1, device=2)
        assert refused(1, device=-1) == "There is no CUDA device -1."
        free(12345, device=3)
        free(12345)
    """)


def test_a_plan_is_served_to_the_requests_that_were_named(run: Run) -> None:
    run("""
        column = lambda *values: np.array(values, dtype=np.int64)
        plan = _core.Plan(10 * MIB, 4, column(5, 6), column(4 * MIB, 0), column(4 * MIB, 3 * MIB),
                          column(0, 1), column(4, 4), column(0, 0))
        install("stalloc")
        free(alloc(MIB))
        _core.pluggable_empty_cache(0)
        _core.pluggable_adopt(0, plan, storage=column(5, 6), size=column(4 * MIB, 3 * MIB),
                              stream=column(0, 0))
        for _ in range(3):
            _core.pluggable_expect(0, 0, 2)
            second = alloc(3 * MIB)
            first = alloc(4 * MIB)
            assert first - second == 4 * MIB
            free(first)
            free(second)
        other = alloc(4 * MIB)
        _, planned, reused, displaced, fallback, _ = _core.pluggable_plan_figures(0)
        assert (planned[0], reused[0] + fallback[0], displaced[0]) == (6, 1, 0)
        _core.pluggable_expect(0, 0, 1)
        alloc(3 * MIB)
        assert _core.pluggable_plan_figures(0)[1][0] == 6
        free(alloc(4 * MIB))
        alloc(4 * MIB)
        assert _core.pluggable_plan_figures(0)[1][0] == 7
    """)


def test_a_request_that_comes_twice_is_two_of_the_plan(run: Run) -> None:
    run("""
        column = lambda *values: np.array(values, dtype=np.int64)
        plan = _core.Plan(8 * MIB, 8, column(1, 2), column(0, 4 * MIB), column(4 * MIB, 4 * MIB),
                          column(0, 1), column(7, 8), column(0, 0))
        install("stalloc")
        alloc(1)
        _core.pluggable_adopt(0, plan, storage=column(1, 2), size=column(4 * MIB, 4 * MIB),
                              stream=column(0, 0))
        for _ in range(2):
            _core.pluggable_expect(0, 0, 2)
            first, second = alloc(4 * MIB), alloc(4 * MIB)
            assert second - first == 4 * MIB
            free(first)
            free(second)
        assert _core.pluggable_plan_figures(0)[1] == (4, 16 * MIB)
    """)


def test_a_plan_is_not_replaced_while_its_arena_is_in_use(run: Run) -> None:
    run("""
        column = lambda *values: np.array(values, dtype=np.int64)
        plan = _core.Plan(4 * MIB, 8, column(1), column(0), column(4 * MIB), column(0), column(7),
                          column(0))
        request = {"storage": column(1), "size": column(4 * MIB), "stream": column(0)}
        install("stalloc")
        alloc(1)
        _core.pluggable_adopt(0, plan, **request)
        _core.pluggable_expect(0, 0, 1)
        pointer = alloc(4 * MIB)
        try:
            _core.pluggable_adopt(0, plan, **request)
            raise AssertionError("it was replaced")
        except ValueError as error:
            assert "lives in its arena" in str(error)
        free(pointer)
        _core.pluggable_adopt(0, plan, **request)
        assert stat("reserved_bytes.all.current") == 2 * MIB
        assert _core.pluggable_plan_figures(0)[1] == (0, 0)
    """)


def test_what_was_served_is_recorded_while_it_is_asked_for(run: Run) -> None:
    run("""
        install()
        free(alloc(700))
        _core.pluggable_record_trace(0, True)
        assert _core.pluggable_trace_length(0) == 0
        pointer = alloc(3 * MIB)
        before_free = _core.pluggable_trace_length(0)
        free(pointer)
        _core.pluggable_record_trace(0, False)
        alloc(700)
        assert [(action, size) for action, address, size, *_ in _core.pluggable_trace(0)] == [
            ("segment_alloc", 20 * MIB), ("alloc", 3 * MIB),
            ("free_requested", 3 * MIB), ("free_completed", 3 * MIB),
        ]
        assert before_free == 2
    """)


def test_no_bytes_take_no_memory(run: Run) -> None:
    run("""
        install()
        text = ctypes.create_string_buffer(2000)
        pointer = driver.fake_try_alloc(
            cast(library.et_replay_alloc, c_void_p), 0, 0, 0, text, len(text)
        )
        assert (pointer, text.value) == (None, b"")
        free(pointer)
        assert driver.fake_used() == 0
    """)


def test_peaks_start_again(run: Run) -> None:
    run("""
        install()
        free(alloc(30 * MIB))
        alloc(MIB)
        assert stat("allocated_bytes.all.peak") == 30 * MIB
        _core.pluggable_reset_peaks(0)
        assert stat("allocated_bytes.all.peak") == MIB
    """)


def test_what_lives_at_the_end_of_the_process_does_no_harm(run: Run) -> None:
    run("""
        import atexit
        install()
        pointers = [alloc(30 * MIB) for _ in range(3)]
        library.et_replay_record_stream(pointers[0], 7)
        atexit.register(free, pointers[0])
        atexit.register(alloc, 50 * MIB)
    """)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("install('ideal')", "The allocator ideal exists in simulation only."),
        ("install('other')", "Expected an allocator among"),
        ("install(settings='other:1')", "other"),
        ("install(); install()", "An allocator has been installed in this process before."),
    ],
)
def test_what_cannot_be_installed(run: Run, call: str, error: str) -> None:
    run(f"""
        try:
            {call}
        except (ValueError, RuntimeError) as error:
            assert {error!r} in str(error), error
        else:
            raise AssertionError("it was installed")
    """)


def test_before_it_is_installed_nothing_is_served(run: Run) -> None:
    run("""
        assert not _core.pluggable_installed()
        assert refused(1) == "No allocator of et_replay is installed."
        assert _core.pluggable_stats(0) == {}
        install()
        _core.pluggable_uninstall()
        install("expandable")
        assert _core.pluggable_installed()
    """)


TWO_IN_TURN = """
        column = lambda *values: np.array(values, dtype=np.int64)
        plan = _core.Plan(12 * MIB, 4, column(1, 2), column(0, 4 * MIB), column(4 * MIB, 8 * MIB),
                          column(0, 1), column(4, 4), column(0, 0))
        requests = {"storage": column(1, 2), "size": column(4 * MIB, 8 * MIB),
                    "stream": column(0, 0), "varies": np.zeros(2, dtype=bool), "begins": [0],
                    "marked": True}
"""
"""Storages of 4 and 8 MiB, one above the other."""


def test_a_plan_is_followed_from_the_first_request_on(run: Run) -> None:
    run(
        TWO_IN_TURN
        + """
        install("stalloc")
        assert _core.pluggable_begin_iteration(0) == {}
        _core.pluggable_follow(0, plan, **requests)
        assert driver.fake_used() == 0 and _core.pluggable_stats(0) == {}, "it is not opened"
        for iteration in range(1, 4):
            first = alloc(4 * MIB)
            other = alloc(100)
            second = alloc(8 * MIB)
            assert second - first == 4 * MIB
            for pointer in (first, other, second):
                free(pointer)
            (figures,) = _core.pluggable_begin_iteration(iteration).values()
            peaks, (planned, reused, displaced, fallback, unmatched) = figures[:3], figures[5:10]
            assert peaks == (12 * MIB + 512, 12 * MIB + 512, 14 * MIB), peaks
            assert planned == (2, 12 * MIB) and unmatched == fallback == (1, 100)
            assert (reused[0], displaced[0], figures[10:]) == (0, 0, (2, 0))
    """
    )


def test_a_device_that_comes_late_is_in_the_iteration_of_the_others(run: Run) -> None:
    run(
        TWO_IN_TURN
        + """
        install("stalloc")
        requests["begins"] = [0, 1]
        _core.pluggable_follow(1, plan, **requests)
        _core.pluggable_begin_iteration(1)
        alloc(4 * MIB, device=1)
        alloc(8 * MIB, device=1)
        ended = _core.pluggable_begin_iteration(2)
        assert list(ended) == [1]
        assert (ended[1][5][0], ended[1][9][0], ended[1][10]) == (1, 1, 1)
    """
    )


def test_peaks_of_an_iteration_are_its_own_with_any_allocator(run: Run) -> None:
    run("""
        install("native")
        free(alloc(30 * MIB))
        _core.pluggable_begin_iteration(1)
        free(alloc(12 * MIB))
        _core.pluggable_reset_peaks(0)
        figures = _core.pluggable_begin_iteration(2)[0]
        assert figures[:5] == (12 * MIB, 12 * MIB, 30 * MIB, 0, 30 * MIB), figures
        assert figures[8] == (1, 12 * MIB) and figures[5] == (0, 0)
        assert stat("allocated_bytes.all.peak") == 0
    """)


def test_what_is_followed_must_fit_the_allocator_and_the_arena(run: Run) -> None:
    run(
        TWO_IN_TURN
        + """
        install("stalloc")
        for what in (requests | {"begins": [1]}, requests | {"stream": column(0)}):
            try:
                _core.pluggable_follow(0, plan, **what)
                raise AssertionError("it was taken")
            except ValueError:
                pass
        _core.pluggable_follow(0, plan, **requests)
        pointer = alloc(4 * MIB)
        try:
            _core.pluggable_follow(0, plan, **requests)
            raise AssertionError("it was replaced")
        except ValueError as error:
            assert "lives in its arena" in str(error)
        free(pointer)
        _core.pluggable_follow(0, plan, **requests)
    """
    )


def test_streams_are_numbered_by_their_first_request(run: Run) -> None:
    run("""
        column = lambda *values: np.array(values, dtype=np.int64)
        plan = _core.Plan(8 * MIB, 4, column(1, 2), column(0, 4 * MIB), column(4 * MIB, 4 * MIB),
                          column(0, 1), column(4, 4), column(1, 2))
        install("stalloc")
        _core.pluggable_follow(0, plan, storage=column(1, 2), size=column(4 * MIB, 4 * MIB),
                               stream=column(1, 2), varies=np.zeros(2, dtype=bool), begins=[0],
                               marked=True)
        first = alloc(4 * MIB, stream=70)
        library.et_replay_record_stream(first, 90)
        assert alloc(4 * MIB, stream=80) - first == 4 * MIB
        assert _core.pluggable_plan_figures(0)[1][0] == 2
    """)


SHARED = """
        column = lambda *values: np.array(values, dtype=np.int64)
        plan = _core.Plan(8 * MIB, 3, column(1, 2, 3), column(0, 0, 4 * MIB),
                          column(4 * MIB, 4 * MIB, 4 * MIB), column(0, 1, 2), column(1, 2, 3),
                          column(0, 1, 0))
        driver.fake_waits.restype = c_size_t
        driver.fake_last_waiting.restype = driver.fake_last_waited_for.restype = c_uint64
        install("stalloc")
        _core.pluggable_follow(0, plan, storage=column(1, 2, 3),
                               size=column(4 * MIB, 4 * MIB, 4 * MIB), stream=column(0, 1, 0),
                               varies=np.zeros(3, dtype=bool), begins=[0], marked=True)
"""
"""Storages 1 and 2, of stream 0 and another one, in one place; storage 3 of stream 0 in its own."""


def test_a_stream_waits_for_the_one_that_freed_its_memory(run: Run) -> None:
    run(
        SHARED
        + """
        for iteration in range(1, 6):
            first = alloc(4 * MIB)
            free(first)
            assert alloc(4 * MIB, stream=70) == first
            assert (driver.fake_last_waiting(), driver.fake_last_waited_for()) == (70, 0)
            free(first)
            third = alloc(4 * MIB)
            assert third == first + 4 * MIB
            free(third)
            assert driver.fake_waits() == 2 * iteration - 1
            (figures,) = _core.pluggable_begin_iteration(iteration).values()
            assert figures[5] == (3, 12 * MIB)
            again = alloc(4 * MIB)
            assert (driver.fake_last_waiting(), driver.fake_last_waited_for()) == (0, 70)
            free(again)
            _core.pluggable_begin_iteration(iteration)
        assert driver.fake_events() <= 6, "events are used again"
    """
    )


def test_memory_that_a_third_stream_uses_still_is_not_handed_over(run: Run) -> None:
    run(
        SHARED
        + """
        first = alloc(4 * MIB)
        library.et_replay_record_stream(first, 90)
        driver.fake_set_busy(90, 1)
        driver.fake_set_busy(0, 1)
        free(first)
        second = alloc(4 * MIB, stream=70)
        assert second != first
        free(second)
        driver.fake_set_busy(90, 0)
        _core.pluggable_begin_iteration(1)
        assert alloc(4 * MIB) != first, "its own stream uses it still"
        driver.fake_set_busy(0, 0)
        _core.pluggable_begin_iteration(2)
        waits = driver.fake_waits()
        assert alloc(4 * MIB) == first
        assert driver.fake_waits() == waits, "it is idle"
    """
    )


def test_what_is_freed_within_a_capture_is_handed_over_after_it(run: Run) -> None:
    run(
        SHARED
        + """
        begin, end = (
            cast(getattr(library, f"et_replay_{verb}_pool"), c_void_p) for verb in ("begin", "end")
        )
        first = alloc(4 * MIB)
        driver.fake_begin_pool(begin, 1, 9)
        events = driver.fake_events()
        free(first)
        assert driver.fake_events() == events, "a capture has no events"
        assert alloc(4 * MIB, stream=70) != first
        driver.fake_call_pool(end, 1)
        _core.pluggable_begin_iteration(1)
        assert alloc(4 * MIB) == first
    """
    )


def test_a_stream_waits_for_all_that_may_use_the_memory_still(run: Run) -> None:
    """The owner may be told to wait for another's use only after it has freed the memory."""
    run(
        SHARED
        + """
        for other in (70, 90):
            alloc(100, stream=other)
        first = alloc(4 * MIB)
        free(first)
        assert alloc(4 * MIB, stream=70) == first
        assert driver.fake_waits() == 2, "for streams 0 and 90"
    """
    )


def test_streams_with_memory_of_their_own_wait_for_none(run: Run) -> None:
    run(
        TWO_IN_TURN
        + """
        driver.fake_waits.restype = c_size_t
        install("stalloc")
        _core.pluggable_follow(0, plan, **requests)
        for iteration in range(1, 4):
            for pointer in (alloc(4 * MIB), alloc(8 * MIB)):
                free(pointer)
            _core.pluggable_begin_iteration(iteration)
        assert driver.fake_waits() == driver.fake_events() == 0
    """
    )


def test_what_a_graph_captures_is_not_looked_for_in_the_list(run: Run) -> None:
    run(
        TWO_IN_TURN
        + """
        begin, end = (
            cast(getattr(library, f"et_replay_{verb}_pool"), c_void_p) for verb in ("begin", "end")
        )
        install("stalloc")
        _core.pluggable_follow(0, plan, **requests)
        alloc(1)
        driver.fake_begin_pool(begin, 1, 0)
        alloc(4 * MIB)
        driver.fake_call_pool(end, 1)
        alloc(4 * MIB)
        figures = _core.pluggable_begin_iteration(1)[0]
        assert (figures[5], figures[9]) == ((1, 4 * MIB), (1, 1))
    """
    )
