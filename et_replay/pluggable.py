"""An allocator of this project in place of PyTorch's, for all CUDA memory of the process."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from et_replay import _core
from et_replay.allocator_figures import IterationFigures, MemoryStatistics, PlanFigures
from et_replay.errors import OutOfMemoryError, UsageError, first_line
from et_replay.events import Int64Array, PlanColumns, RunPlan, SegmentState
from et_replay.planning.run_plan import number_streams
from et_replay.simulation import (
    native_plan,
    native_requests,
    nearest_version,
    out_of_memory_of,
    segment_state,
)

expect = _core.pluggable_expect
"""Say which requests of the list of `adopt` come next on a device, from a row on to before another.

Each gets the storage of the first of them that has its size and stream and has not come yet.
"""

_THROWER = """\
#include <c10/util/Exception.h>

extern "C" void et_replay_throw_out_of_memory(const char* text) {
  throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, text);
}
"""
_loaded: list[ctypes.CDLL] = []  # torch holds addresses in them: they stay
_loaded_allocators: list[object] = []


def install(allocator: str, device_memory: int | None = None) -> None:
    """Serve all CUDA memory of this process from `allocator`, a name of ALLOCATORS and settings.

    Each device is used up to `device_memory` bytes; None is all it has. Must come before the first
    use of CUDA, and only once. From then on torch.cuda's figures of memory are those of
    `allocator`, and running out of memory raises torch.OutOfMemoryError, or RuntimeError where
    there is no C++ compiler. Raises UsageError where this cannot be.
    """
    name, _, settings = allocator.partition(":")
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise UsageError(_TOO_LATE)
    try:
        _core.pluggable_install(
            name,
            settings=settings,
            torch_version=nearest_version(torch.__version__),
            device_memory=device_memory,
        )
    except (RuntimeError, ValueError) as error:
        raise UsageError(str(error)) from None
    try:
        _hand_to_torch()
    except (RuntimeError, AttributeError) as error:
        _core.pluggable_uninstall()
        late = "already initialized" in str(error)
        raise UsageError(_TOO_LATE if late else f"torch takes no allocator: {error}") from error
    _replace_statistics()
    _keep_cudnn_benchmark_off()
    throw = out_of_memory_thrower()
    if throw is not None:
        _core.pluggable_throw_out_of_memory_by(throw)


_TOO_LATE = "The allocator must be installed before the first use of CUDA in this process."


def is_installed() -> bool:
    """Return whether `install` has been called."""
    return _core.pluggable_installed()


def adopt(
    plan: PlanColumns, storage: Int64Array, size: Int64Array, stream: Int64Array, device: int = 0
) -> None:
    """Serve another plan from here on, to requests as they are listed, a row each.

    The arena of the plan before must be empty. Raises ValueError for a plan that cannot be.
    """
    storage, size, stream = map(np.ascontiguousarray, (storage, size, stream))
    _core.pluggable_adopt(device, native_plan(plan), storage=storage, size=size, stream=stream)


def follow(plan: RunPlan, device: int = 0) -> None:
    """Serve a plan to requests by their size, stream and place in its list, from here on.

    A device that has served nothing yet is not opened: it serves the plan from its first request
    on. Otherwise nothing may live in the arena of the plan before. Raises ValueError for a plan
    that cannot be.
    """
    numbered = number_streams(plan)
    _core.pluggable_follow(device, native_plan(numbered.columns), **native_requests(numbered))


def begin_iteration(iteration: int) -> dict[int, IterationFigures]:
    """Go to where an iteration of the list that is followed begins; past its last, to that.

    Returns the figures of the iteration that has ended, by the indices of devices that have served
    anything, with whatever allocator is installed.
    """
    ended = _core.pluggable_begin_iteration(iteration)
    return {device: IterationFigures.of(figures) for device, figures in ended.items()}


def statistics(device: int = 0) -> MemoryStatistics | None:
    """Return the counters of `device`; None if it has served nothing yet."""
    stats = _core.pluggable_stats(device)
    return MemoryStatistics.of(stats) if stats else None


def reset_peaks(device: int = 0) -> None:
    """Start the peaks of `device` again from the current values."""
    _core.pluggable_reset_peaks(device)


def plan_figures(device: int = 0) -> PlanFigures | None:
    """Return how the plan was served on `device`; None if there is no plan."""
    figures = _core.pluggable_plan_figures(device)
    return None if figures is None else PlanFigures.of(figures)


def last_failure(device: int = 0) -> tuple[OutOfMemoryError, tuple[SegmentState, ...]] | None:
    """Return the last request that did not fit `device`, and what was reserved when it came.

    The storages of live blocks are 0, as torch does not tell them.
    """
    failure = _core.pluggable_last_failure(device)
    if failure is None:
        return None
    figures, segments = failure
    return out_of_memory_of(figures), tuple(map(segment_state, segments))


def segments(device: int = 0) -> tuple[SegmentState, ...]:
    """Return what is reserved of `device` now, as `last_failure` does of that moment."""
    return tuple(map(segment_state, _core.pluggable_segments(device)))


def configure_torch(settings: str) -> None:
    """Set of PyTorch's own allocator what PYTORCH_ALLOC_CONF sets; raises UsageError."""
    # torch below 2.9 has it under another name
    found = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    configure = found or torch.cuda.memory._set_allocator_settings
    try:
        configure(settings)
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"torch {torch.__version__} does not take the settings {settings!r} of --allocator:"
            f" {first_line(error)}."
        ) from None


def _hand_to_torch() -> None:
    path = str(_core.__file__)
    library = ctypes.CDLL(path)
    served = torch.cuda.memory.CUDAPluggableAllocator(path, "et_replay_alloc", "et_replay_free")
    native = served.allocator()  # type: ignore[no-untyped-call]
    for setter, function in _CALLBACKS.items():
        if hasattr(native, setter):
            address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
            getattr(native, setter)(address)
    torch.cuda.memory.change_current_allocator(served)
    _loaded.append(library)
    _loaded_allocators.append(served)


_CALLBACKS = {
    "set_record_stream_fn": "et_replay_record_stream",
    "set_reset_fn": "et_replay_empty_cache",
    "set_memory_fraction_fn": "et_replay_set_fraction",
    "set_begin_allocate_to_pool": "et_replay_begin_pool",
    "set_end_allocate_to_pool_fn": "et_replay_end_pool",
    "set_release_pool": "et_replay_release_pool",
}
"""What torch's object is told by, and what it then calls; a torch without one goes without."""


def _replace_statistics() -> None:
    """Let torch.cuda's functions answer that refuse to with an allocator from outside.

    All others that read counters of memory (memory_allocated, memory_summary, ...) call these.
    """

    def index(device: Any) -> int:
        return int(torch.cuda._utils._get_device_index(device, optional=True))

    def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
        if device is None and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return OrderedDict()
        return OrderedDict(sorted(_core.pluggable_stats(index(device)).items()))

    def reset_peak_memory_stats(device: Any = None) -> None:
        _core.pluggable_reset_peaks(index(device))

    accelerator = getattr(torch, "accelerator", None)
    modules = (torch.cuda.memory, torch.cuda, getattr(accelerator, "memory", None), accelerator)
    for module in modules:
        for function in (memory_stats, reset_peak_memory_stats):
            if hasattr(module, function.__name__):
                setattr(module, function.__name__, function)


def _keep_cudnn_benchmark_off() -> None:
    def set_benchmark(on: bool) -> None:
        if on:
            warnings.warn(
                "torch.backends.cudnn.benchmark stays off: it asks for what torch supports with"
                " its own allocator only.",
                stacklevel=3,
            )

    on = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    bindings: Any = torch._C
    bindings._set_cudnn_benchmark = set_benchmark
    vars(type(torch.backends.cudnn))["benchmark"].setter = set_benchmark
    set_benchmark(on)


def out_of_memory_thrower() -> int | None:
    """Return the address of a function that throws what becomes torch.OutOfMemoryError.

    It is built once for a version of torch; None where it cannot be.
    """
    folder = _private_folder()
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if folder is None:
        return None
    target = folder / f"throw_out_of_memory-{torch.__version__}.so"
    if not target.exists() and not (compiler and _build_thrower(compiler, target)):
        return None
    try:
        library = ctypes.CDLL(str(target))
        function = library.et_replay_throw_out_of_memory
    except (OSError, AttributeError):
        return None
    _loaded.append(library)
    return ctypes.cast(function, ctypes.c_void_p).value


def _private_folder() -> Path | None:
    """Return a folder for what is built, which no other user can write to."""
    folder = Path(tempfile.gettempdir()) / f"et_replay-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    own = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if own and stat.S_ISDIR(status.st_mode) else None


def _build_thrower(compiler: str, target: Path) -> bool:
    """Build it against torch's headers, elsewhere first: another process may do the same."""
    torch_folder = Path(torch.__file__).parent
    abi = int(torch.compiled_with_cxx11_abi())
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        source = Path(folder, "throw.cpp")
        source.write_text(_THROWER)
        built = Path(folder, "throw.so")
        for standard in ("c++17", "c++20"):
            command = [
                *compiler.split(), f"-std={standard}", "-O1", "-shared", "-fPIC",
                f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
                f"-I{torch_folder / 'include'}", str(source), "-o", str(built),
                f"-L{torch_folder / 'lib'}", "-lc10",
            ]  # fmt: skip
            outcome = subprocess.run(command, capture_output=True, check=False)
            if outcome.returncode == 0:
                built.replace(target)
                return True
    return False
