"""Command-line words in, checked values out: the argument types that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from et_replay.errors import TraceError, UsageError
from et_replay.formats import sniff
from et_replay.formats.captured_endings import shortcoming
from et_replay.formats.captured_run import (
    RUN_SUFFIX,
    CapturedRun,
    captured_runs,
    read_captured_run,
    run_that_wrote,
)
from et_replay.ranks.files import (
    is_pattern,
    one_of_each,
    rank_files,
    rank_in_name,
    told_world_size,
)
from et_replay.units import parse_bytes

_NAMED = 8
_ALL_RANKS = ", or replay all ranks: torchrun --nproc-per-node {} -m et_replay"
_DEVICE = re.compile(r"auto|cpu|meta|cuda(:\d+)?")


def path(text: str) -> str:
    """Read a path, which says something."""
    if not text:
        raise argparse.ArgumentTypeError("Expected a path, got ''.")
    return text


def flag(name: str) -> str:
    """Return the flag whose value is kept as `name`."""
    return f"--{name.replace('_', '-')}"


def name(text: str) -> str:
    """Read a name, which says something."""
    if not text:
        raise argparse.ArgumentTypeError("Expected a name, got ''.")
    return text


def ending(*endings: str) -> Callable[[str], str]:
    """Return a reader of paths that end in one of these ways."""

    def read(text: str) -> str:
        if not text.endswith(endings):
            expected = " or ".join(endings)
            raise argparse.ArgumentTypeError(
                f"Expected a name that ends in {expected}, got {text!r}."
            )
        return text

    return read


def size(text: str) -> int:
    """Read a positive size such as 24GiB."""
    try:
        value = parse_bytes(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if value == 0:
        raise argparse.ArgumentTypeError(f"Expected a size above 0, got {text!r}.")
    return value


def size_or_none(text: str) -> int:
    """Read a size such as 24GiB, or 0."""
    return 0 if text.strip() == "0" else size(text)


def share(text: str) -> float:
    """Read a share above 0, 1 at most."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Expected a number, got {text!r}.") from error
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"Expected a number above 0 and up to 1, got {text!r}.")
    return value


def seconds(text: str) -> float:
    """Read a time above 0 in seconds."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Expected a number of seconds, got {text!r}.") from error
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"Expected a number of seconds above 0, got {text!r}.")
    return value


def integer(minimum: int, maximum: int = 2**63 - 1) -> Callable[[str], int]:
    """Return a reader of whole numbers from `minimum` to `maximum`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"Expected a whole number, got {text!r}.") from error
        if not minimum <= value <= maximum:
            limit = f"at least {minimum}" if value < minimum else f"at most {maximum}"
            raise argparse.ArgumentTypeError(f"Expected {limit}, got {text!r}.")
        return value

    return read


def device(text: str) -> str:
    """Read the name of a device to replay on."""
    if _DEVICE.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"Expected auto, cuda, cuda:N, cpu or meta, got {text!r}.")
    return text


class _Once(argparse.Action):
    """Stores a value that may be given once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given more than once; one trace is read at a time")
        setattr(namespace, self.dest, values)


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to read."""
    parser.add_argument(
        "--trace",
        "--input",
        "--trace-path",
        type=path,
        metavar="PATH",
        required=True,
        action=_Once,
        help="the execution trace: JSON, plain or compressed by gzip or zstd, or the folder of a "
        "captured run or of all ranks of a job, or their files as job_{rank}.json; - is stdin",
    )
    _add_reading(parser)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--window",
        metavar="TEXT",
        help="what to take of the trace: a ProfilerStep by its number or name, first, last, all, "
        "or node ids as 100:200 (default: the last step that holds an operator)",
    )
    parser.add_argument(
        "--subgraph",
        metavar="NAME",
        type=name,
        help="of that window only what lies within the annotation of this name, the last one; "
        "NAME#2 is the second",
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse a damaged trace instead of repairing it"
    )


def add_parallel(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to share out the work on several inputs."""
    parser.add_argument(
        "--jobs",
        type=integer(1),
        metavar="N",
        help="inputs to work on at a time (default: one a core)",
    )
    parser.add_argument(
        "--backend",
        default="loky",
        metavar="NAME",
        help="joblib backend that runs them: loky, threading, or a cluster by dask or ray",
    )


def window_of(arguments: argparse.Namespace) -> str | None:
    """Write what --window and --subgraph say as `select_window` takes it."""
    window: str | None = arguments.window
    if arguments.subgraph is None:
        return window
    return f"{window or ''}/{arguments.subgraph}"


def add_inputs(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the options that say what several inputs to read."""
    parser.add_argument(
        "--trace",
        action="append",
        type=path,
        metavar="PATH",
        required=required,
        default=[],
        help="an execution trace, memory snapshot, Kineto trace, STAlloc or RMM log, recorded "
        "streams, CSV of buffers (id,lower,upper,size), a folder of them, or that of a captured "
        "run; repeatable; - is stdin",
    )
    _add_reading(parser)


class Named(NamedTuple):
    """A file to read, the process of a captured run that it is of, and the rank of a job's many."""

    path: str
    run: CapturedRun | None = None
    rank: int | None = None


def expand(paths: Sequence[str], *, traces: bool = False) -> list[Named]:
    """List the inputs: a folder stands for what can be read of the files in it, by name or rank.

    A path with {rank} stands for the files of all ranks of a job. The folder of a captured run
    stands for one file of each process: the memory snapshot, else the execution trace, or with
    `traces` the other way round. Raises TraceError where one of a job's ranks is missing.
    """
    files: list[Named] = []
    for path in paths:
        if runs := runs_at(path):
            found = _of_runs(path, runs, traces)
            files += _of_all_ranks(path, found, runs) if is_folder(Path(path)) else found
        elif path != "-" and is_folder(Path(path)):
            files += _of_folder(path)
        elif is_pattern(path):
            found = [
                Named(str(file), run_that_wrote(file), rank)
                for rank, file in rank_files(path).items()
            ]
            files += _of_all_ranks(path, found)
        else:
            files.append(Named(path, run_that_wrote(path)))
    return files


def expand_to_one(path: str) -> Named:
    """Return the file to read of a captured run, its execution trace if it has one, or `path`."""
    runs = runs_at(path)
    found = _of_runs(path, runs, traces=True) if runs else [Named(path, run_that_wrote(path))]
    if len(found) > 1:
        raise UsageError(
            f"{path} is a run of {len(found)} processes, expected one: give one file of"
            f" {file_names([named.path for named in found])}{_ALL_RANKS.format(len(found))}."
        )
    if not runs and path != "-" and is_folder(Path(path)):
        names = [named.path for named in _of_folder(path)]
        raise UsageError(
            f"{path} is a folder, expected one trace: give one file of"
            f" {file_names(names)}{_ALL_RANKS.format(len(names))}."
        )
    return found[0]


def file_names(paths: Sequence[str]) -> str:
    """List the first few names of files, without their folders."""
    more = [f"{len(paths) - _NAMED} more"] if len(paths) > _NAMED else []
    return ", ".join([*(Path(path).name for path in paths[:_NAMED]), *more])


def runs_at(path: str) -> list[CapturedRun]:
    """Read the captured run in a folder, or what one process of it told; none at other paths."""
    if path != "-" and is_folder(Path(path)):
        return captured_runs(path)
    return [read_captured_run(path)] if path.endswith(RUN_SUFFIX) else []


def _of_folder(path: str) -> list[Named]:
    """List the recordings in a folder, by the ranks in their names if they are of several.

    Raises TraceError where one of these ranks is missing or has two files. One whose file cannot be
    read is listed, for reading it to say why.
    """
    files = [file for file in sorted(Path(path).iterdir()) if file.is_file()]
    found = [file for file in files if _is_recording(file)]
    if not found:
        raise UsageError(f"The folder {path} holds no trace and no memory history.")
    ranks = {file: rank_in_name(file.name) for file in files}
    known = {ranks[file] for file in found}
    if None not in known:
        endings = {ending for file in found for ending in file.suffixes}
        found += [
            file
            for file in files
            if endings.intersection(file.suffixes) and ranks[file] not in (None, *known)
        ]
    known = {ranks[file] for file in found}
    if None in known or len(known) < 2:
        return [Named(str(file)) for file in found]
    return _of_all_ranks(path, [Named(str(file), rank=ranks[file]) for file in found])


def _of_all_ranks(
    path: str, found: Sequence[Named], runs: Sequence[CapturedRun] = ()
) -> list[Named]:
    """Sort the files of a job by rank; processes that are no ranks of one stay as they are.

    Raises TraceError where a rank is missing, by what the runs, or else a trace, tell.
    """
    named = {Path(each.path): each for each in found}
    ranks = [(each.rank, file) for file, each in named.items() if each.rank is not None]
    if not ranks:
        return list(found)
    world_size = _world_size(runs) if runs else told_world_size(ranks[0][1], ranks[0][0])
    return [named[file] for file in one_of_each(path, ranks, world_size).values()]


def _world_size(runs: Sequence[CapturedRun]) -> int:
    return max(run.header.world_size for run in runs)


def _of_runs(path: str, runs: Sequence[CapturedRun], traces: bool) -> list[Named]:
    is_job = _world_size(runs) > 1
    found = [
        Named(str(file), run, run.header.rank if is_job else None)
        for run in runs
        if (file := (run.trace or run.snapshot) if traces else (run.snapshot or run.trace))
    ]
    if not found:
        reasons = dict.fromkeys(map(shortcoming, runs))
        raise UsageError(
            f"The captured run {path} has neither a memory snapshot nor an execution trace:"
            f" {next(filter(None, reasons), 'its files are gone.')}"
        )
    return found


def is_folder(path: Path) -> bool:
    """Tell whether there is such a folder."""
    try:
        return path.is_dir()
    except OSError:  # such as a name that is too long, which reading or writing will tell
        return False


def _is_recording(file: Path) -> bool:
    try:
        return file.is_file() and sniff(file) is not None
    except TraceError:
        return False


def add_torch_version(parser: argparse.ArgumentParser) -> None:
    """Add the option that says whose allocator is simulated."""
    parser.add_argument(
        "--torch-version",
        metavar="X.Y",
        help="whose allocator to imitate, 2.7 to 2.14 (default: what the file "
        "or the captured run tells, else newest)",
    )


def add_device_memory(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how much a simulated device has."""
    parser.add_argument(
        "--device-memory",
        type=size,
        metavar="SIZE",
        help="capacity of the device, such as 24GiB (default: what the file "
        "proves, else that of a captured run's GPU, else 80GiB)",
    )


def add_other_memory(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what of a simulated device is not PyTorch's."""
    parser.add_argument(
        "--other-memory",
        type=size_or_none,
        default=0,
        metavar="SIZE",
        help="what of a simulated device is not PyTorch's: CUDA context, libraries, other "
        "processes (default: 0)",
    )


def add_run_kernels(parser: argparse.ArgumentParser) -> None:
    """Add the option that allows code from beside a trace to run."""
    parser.add_argument(
        "--run-kernels",
        action="store_true",
        help="on cuda, run the kernels of a compiled model from the folder of resources beside the "
        "trace: this runs Python code that came with the trace (default: substitute them)",
    )


def add_imports(parser: argparse.ArgumentParser) -> None:
    """Add the option that names modules whose import registers operators."""
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        type=name,
        default=[],
        metavar="MODULE",
        help="a Python module to import first, which registers operators of another library, such "
        "as torchvision or fbgemm_gpu; repeatable",
    )


def add_page(parser: argparse.ArgumentParser) -> None:
    """Add the option that writes the page of et_replay timeline as well."""
    parser.add_argument(
        "--page",
        type=ending(".html"),
        metavar="FILE",
        help="write memory over time as one HTML page as well, as et_replay timeline does",
    )


def add_output(parser: argparse.ArgumentParser, overwritten: str = "--json") -> None:
    """Add the options that say what to write, of which --force lets some overwrite files."""
    parser.add_argument(
        "--json",
        type=path,
        metavar="FILE",
        help="write the result as JSON as well; - writes nothing but JSON to stdout",
    )
    parser.add_argument("--force", action="store_true", help=f"let {overwritten} overwrite files")
    parser.add_argument("--quiet", action="store_true", help="no progress and no warnings")


def add_mark(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what the iterations of a script end with."""
    parser.add_argument(
        "--mark",
        type=name,
        metavar="NAME",
        help="an iteration ends where a torch.profiler.record_function of this name does, which "
        "may be a pattern such as step* (default: where the script's profiler or optimizer steps)",
    )


def add_script(parser: argparse.ArgumentParser) -> None:
    """Let the words after -- be kept as `script`: a command to run."""
    parser.usage = f"{parser.prog} [options] -- command ..."
    parser.set_defaults(script=())
