"""Options that several commands share: a parser in, the same with them out."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from et_replay.commands import argument_types

_FLAGS = {"imports": "--import"}
"""Those that are kept by another name than they are given by."""
FOR_TRACES = "is for execution traces, and means nothing for a memory history"


def given(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> frozenset[str]:
    """Tell under which names options are kept that have another value than their default."""
    kept = vars(arguments).items()
    return frozenset(name for name, value in kept if value != parser.get_default(name))


def meaningless(arguments: argparse.Namespace, names: Iterable[str], why: str) -> list[str]:
    """Say of which of these options, as they are kept, are given, that they mean nothing: `why`."""
    return [f"{flag(name)} {why}." for name in names if name in arguments.given]


def flag(name: str) -> str:
    """Return the flag whose value is kept as `name`."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


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


class Agreeing(argparse.Action):
    """Stores what a flag, or another one that is short for a value of it, says; they must agree.

    The flags that were met are noted in the namespace as `spelled`, by the name of what they give.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        is_short = self.nargs == 0
        value = self.const if is_short else values
        text = option_string if is_short else f"{option_string} {values}"
        spelled = vars(namespace).setdefault("spelled", {}).setdefault(self.dest, {})
        for flag_met, (value_met, text_met) in spelled.items():
            if flag_met != option_string and value_met != value:
                parser.error(f"{text_met} and {text} contradict each other, expected one of them")
        spelled[option_string] = value, text
        setattr(namespace, self.dest, value)


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to read."""
    parser.add_argument(
        "--trace",
        "--input",
        "--trace-path",
        type=argument_types.path,
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
        type=argument_types.name,
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
        type=argument_types.integer(1),
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
        type=argument_types.path,
        metavar="PATH",
        required=required,
        default=[],
        help="an execution trace, memory snapshot, Kineto trace, STAlloc or RMM log, recorded "
        "streams, CSV of buffers (id,lower,upper,size), a folder of them, or that of a captured "
        "run; repeatable; - is stdin",
    )
    _add_reading(parser)


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
        type=argument_types.size,
        metavar="SIZE",
        help="capacity of the device, such as 24GiB (default: what the file "
        "proves, else that of a captured run's GPU, else 80GiB)",
    )


def add_memory_fraction(parser: argparse.ArgumentParser, of: str = "") -> None:
    """Add the option that says what share of a simulated device PyTorch may hold."""
    parser.add_argument(
        "--memory-fraction",
        type=argument_types.share,
        metavar="F",
        help=f"{of}what share of the device memory PyTorch may hold, as "
        "torch.cuda.set_per_process_memory_fraction sets it (default: all)",
    )


def add_other_memory(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what of a simulated device is not PyTorch's."""
    parser.add_argument(
        "--other-memory",
        type=argument_types.size_or_none,
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
        type=argument_types.name,
        default=[],
        metavar="MODULE",
        help="a Python module to import first, which registers operators of another library, such "
        "as torchvision or fbgemm_gpu; repeatable",
    )


def add_page(parser: argparse.ArgumentParser) -> None:
    """Add the option that writes the page of et_replay timeline as well."""
    parser.add_argument(
        "--page",
        type=argument_types.ending(".html"),
        metavar="FILE",
        help="write memory over time as one HTML page as well, as et_replay timeline does",
    )


def add_output(parser: argparse.ArgumentParser, overwritten: str = "--json") -> None:
    """Add the options that say what to write, of which --force lets some overwrite files."""
    parser.add_argument(
        "--json",
        type=argument_types.path,
        metavar="FILE",
        help="write the result as JSON as well; - writes nothing but JSON to stdout",
    )
    parser.add_argument("--force", action="store_true", help=f"let {overwritten} overwrite files")
    parser.add_argument("--quiet", action="store_true", help="no progress and no warnings")


def add_mark(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what the iterations of a script end with."""
    parser.add_argument(
        "--mark",
        type=argument_types.name,
        metavar="NAME",
        help="an iteration ends where a torch.profiler.record_function of this name does, which "
        "may be a pattern such as step* (default: where the script's profiler or optimizer steps)",
    )


def add_script(parser: argparse.ArgumentParser) -> None:
    """Let the words after -- be kept as `script`: a command to run."""
    parser.usage = f"{parser.prog} [options] -- command ..."
    parser.set_defaults(script=())
