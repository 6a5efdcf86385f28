"""A recorded launch of a generated kernel in, a function that launches the kernel again out.

A compiled graph launches kernels that torch has written for it in Triton. The observer saves their
sources in a folder beside the trace and records each launch with its arguments: tensors, sizes, and
behind them the stream; before the stream the grid, in traces of torch 2.6 and older.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from et_replay.errors import headline
from et_replay.execution_trace import Node, Opaque, TensorRef, Value
from et_replay.formats.kernel_text import KernelTexts
from et_replay.formats.resources import kernel_source, possible_folders, resource_folders
from et_replay.replay.dtypes import torch_dtype
from et_replay.replay.operators import Unresolvable

_BESIDE_ARGUMENTS = frozenset({"grid", "stream"})
"""What a launcher takes by name, besides the arguments of its kernel."""


class Launch(NamedTuple):
    """A function, and the recorded arguments that it takes; tensors go where references are.

    `index_limits` maps the place of arguments whose entries index something to what these must stay
    below.
    """

    function: Callable[..., None]
    arguments: tuple[Value, ...]
    index_limits: dict[int, int]


class KernelLoader:
    """Loads the kernels of one trace for one device, the file of each once.

    Loading a kernel runs Python code that came with the trace, so nothing is loaded unless
    `run_kernels` says that the user wants it.
    """

    def __init__(self, trace: str, device: torch.device, run_kernels: bool) -> None:
        self._trace = trace
        self._folders = resource_folders(trace)
        self._texts = KernelTexts(trace)
        self._device = device
        self._run_kernels = run_kernels
        self._loaded: dict[tuple[Path, str], Any] = {}
        self._tuned: set[tuple[Path, str]] = set()

    def launch(self, node: Node) -> Launch:
        """Make the launch that `node` recorded; raises Unresolvable where that cannot be."""
        source = self._source(node)
        kernel = self._kernel(source, node.name)
        arguments, grid = _recorded(node)
        expected = _argument_count(kernel)
        if len(arguments) != expected:
            raise Unresolvable(
                f"its kernel {source.name} takes {expected} arguments,"
                f" and {len(arguments)} were recorded"
            )
        if any(isinstance(value, (Opaque, tuple)) for value in arguments):
            raise Unresolvable("an argument of its kernel was not recorded")
        text = self._texts.of(node)
        limits = text.index_limits() if text is not None else {}
        launch = Launch(self._function(kernel, grid), arguments, limits)
        self._tune((source, node.name), kernel, launch)
        return launch

    def _source(self, node: Node) -> Path:
        what = f"a generated {node.kernel_backend} kernel"
        if self._device.type != "cuda" or node.kernel_backend != "triton":
            raise Unresolvable(f"{what}, which cannot run on {self._device.type}")
        source = kernel_source(self._folders, node.kernel_file)
        if source is None:
            name = Path(node.kernel_file).name or "of no name"
            folders = self._folders or possible_folders(self._trace)
            where = " or ".join(str(folder) for folder in folders)
            raise Unresolvable(f"{what}, whose source {name} is not in {where}")
        if not self._run_kernels:
            raise Unresolvable(f"{what}; --run-kernels runs its code from {source.parent}")
        return source

    def _kernel(self, source: Path, name: str) -> Any:
        """Return the compiled kernel `name`, or raise again what hindered it the first time."""
        key = source, name
        if key not in self._loaded:
            try:
                with _silenced():
                    self._loaded[key] = _load(source, name, self._device)
            # It is somebody else's code: whatever it raises is a reason.
            except (Exception, SystemExit) as error:
                reason = headline(error, qualified=False)
                self._loaded[key] = Unresolvable(
                    f"its kernel {source.name} does not load here: {reason}"
                )
        kernel = self._loaded[key]
        if isinstance(kernel, Unresolvable):
            raise kernel
        return kernel

    def _function(self, kernel: Any, grid: str) -> Callable[..., None]:
        run, index = kernel.run, self._device.index
        stream: Any = torch._C._cuda_getCurrentRawStream  # as graphs of torch itself ask for it
        if "grid" in inspect.signature(run).parameters:
            blocks = _grid(grid)

            def launch(*arguments: Any) -> None:
                run(*arguments, grid=blocks, stream=stream(index))

        else:

            def launch(*arguments: Any) -> None:
                run(*arguments, stream=stream(index))

        if index == torch.cuda.current_device():
            return launch

        def launch_there(*arguments: Any) -> None:
            with torch.cuda.device(index):
                launch(*arguments)

        return launch_there

    def _tune(self, key: tuple[Path, str], kernel: Any, launch: Launch) -> None:
        """Launch a kernel that still has to choose its configuration.

        The first launch of a kernel with several configurations times them all, over copies of what
        it writes in place and through hundreds of MiB that flush the cache of the GPU, and keeps
        the fastest. That is no part of the job, so it happens here, over zeros, before memory is
        limited and measured. torch keeps the choice in its own cache, for later replays too.
        """
        if len(kernel.launchers) == 1 or key in self._tuned:
            return
        self._tuned.add(key)
        try:
            with _silenced():
                launch.function(*(_stand_in(each, self._device) for each in launch.arguments))
                torch.cuda.synchronize(self._device)
        except torch.OutOfMemoryError:
            return  # its launch in the replay decides whether the job's own tensors fit
        except Exception as error:
            reason = headline(error, qualified=False)
            hindrance = Unresolvable(f"its kernel does not launch here: {reason}")
            self._loaded[key] = hindrance
            raise hindrance from error


def _load(source: Path, name: str, device: torch.device) -> Any:
    """Import a kernel's source as torch does, and compile all its configurations for `device`.

    torch takes a copy into its own cache, under the same name, where it also notes which
    configuration was the fastest: the folder beside the trace is left as it is.
    """
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.runtime.hints import DeviceProperties
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    key, path = PyCodeCache.write(source.read_text(encoding="utf-8"))
    # With attributes, even none, a module is loaded anew: one kept could be for another device.
    module = PyCodeCache.load_by_key_path(key, path, attrs={})
    found = {
        each: value for each, value in vars(module).items() if isinstance(value, CachingAutotuner)
    }
    if name not in found and len(found) != 1:
        raise ImportError(f"it holds {len(found)} kernels, none of them {name}")
    kernel: Any = found[name] if name in found else next(iter(found.values()))
    properties = DeviceProperties.create(device)
    # The source names the ordinal and the architecture of the GPU that it was written on.
    kernel.device_props = properties
    kernel.triton_meta |= {"device": properties.index, "device_type": properties.type}
    kernel.precompile()
    return kernel


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep torch from logging a traceback for what becomes a reason."""
    from torch._inductor.runtime import triton_heuristics

    log: Any = triton_heuristics.log
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _recorded(node: Node) -> tuple[tuple[Value, ...], str]:
    """Split what a launch recorded into the arguments of the kernel and its grid, if any."""
    values, grid = list(node.inputs), ""
    if values and type(values[-1]) is int:
        values.pop()  # the stream: an address in the process that recorded it
    if values and isinstance(values[-1], str):
        grid = str(values.pop())
    return tuple(values), grid


def _argument_count(kernel: Any) -> int:
    """Count what the launchers of a compiled kernel take: constants such as XBLOCK are left out."""
    names = inspect.signature(kernel.launchers[0]).parameters
    return len(names.keys() - _BESIDE_ARGUMENTS)


def _grid(text: str) -> Any:
    """Make the grid that torch 2.6 launches with from its record: `grid(8,)`."""
    from torch._inductor.runtime import triton_heuristics

    match = re.fullmatch(r"(\w*grid\w*)\(([\d, ]+)\)", text)
    make = getattr(triton_heuristics, match[1], None) if match else None
    if match is None or make is None:
        raise Unresolvable(
            f"torch {torch.__version__} launches its kernel over a grid, which the trace lacks"
        )
    return make(*(int(size) for size in match[2].split(",") if size.strip()))


def _stand_in(value: Value, device: torch.device) -> Any:
    """Make zeros for a tensor, which are valid where they index; keep what is no tensor."""
    if not isinstance(value, TensorRef):
        return value
    dtype = torch_dtype(value.dtype) or torch.uint8
    if value.strides is None:
        return torch.zeros(value.shape, dtype=dtype, device=device)
    return torch.empty_strided(value.shape, value.strides, dtype=dtype, device=device).zero_()
