"""The options of `et_replay [replay]`, for a parser."""

from __future__ import annotations

import argparse

from et_replay.commands import argument_types, options
from et_replay.explain.explanation import Moment
from et_replay.program import Mode
from et_replay.replay_modes import REPLAY_MODES

DEFAULT_WORKSPACE = -1
"""Stands for the size that the trace itself suggests."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a replay."""
    options.add_input(parser)
    parser.add_argument(
        "--node",
        type=argument_types.integer(0),
        metavar="ID",
        help="replay the operator of this node alone, whatever encloses it",
    )
    _add_device(parser)
    _add_ranks(parser)
    _add_memory(parser)
    _add_allocator(parser)
    _add_iterations(parser)
    _add_operators(parser)
    _add_files(parser)
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="all operators' times; of what is explained, also a picture of each segment: what is "
        "used and what is free",
    )
    options.add_output(parser, "all that is written")


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        type=argument_types.device,
        default="auto",
        action=options.Agreeing,
        metavar="NAME",
        help="auto (cuda where there is one, else cpu), cuda, cuda:N, cpu, or meta, which computes "
        "shapes only; on cpu and meta the device memory is simulated (default: auto)",
    )
    parser.add_argument(
        "--cpu",
        dest="device",
        action=options.Agreeing,
        nargs=0,
        const="cpu",
        help="short for --device cpu",
    )


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay-mode",
        choices=REPLAY_MODES,
        metavar="comp|comm|full",
        help="what is replayed: comp computes, and collectives do no more than they do to memory; "
        "comm makes the collectives alone, over torch.distributed; full is both (default: full "
        "for the traces of several ranks under torchrun, else comp)",
    )
    parser.add_argument(
        "--allow-other-world-size",
        action="store_true",
        help="make collectives though there are fewer or more processes than the job has ranks; "
        "the report says what is then not as in the job",
    )
    parser.add_argument(
        "--collective-timeout",
        type=argument_types.seconds,
        default=300.0,
        metavar="SECONDS",
        help="end all ranks, and say what each waits for, when a collective takes longer "
        "(default: 300)",
    )


def _add_iterations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--warmup",
        "--warmup-iter",
        type=argument_types.integer(0),
        default=1,
        metavar="N",
        help="iterations before the measured ones (default: 1)",
    )
    parser.add_argument(
        "--iterations",
        "--iter",
        type=argument_types.integer(1),
        default=3,
        metavar="N",
        help="measured iterations (default: 3)",
    )
    parser.add_argument(
        "--operator-times",
        action=argparse.BooleanOptionalAction,
        help="take the time of each operation, in three more iterations after the measured ones "
        "(default: on cuda only)",
    )


def _add_operators(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-unsupported",
        choices=("substitute", "skip", "fail"),
        default="substitute",
        help="what to do for an operator that cannot run here: let its outputs appear with their "
        "recorded shapes, leave it out, or stop (default: substitute)",
    )
    options.add_run_kernels(parser)
    options.add_imports(parser)
    parser.add_argument(
        "--seed",
        type=argument_types.integer(0),
        default=0,
        metavar="N",
        help="seed of all values (default: 0)",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    options.add_page(parser)
    parser.add_argument(
        "--config",
        type=argument_types.path,
        metavar="FILE.json",
        help="modules to import and operators to leave out: "
        '{"import": ["module"], "skip": [{"operator": "fbgemm::*", "reason": "why"}]}',
    )
    parser.add_argument(
        "--update-config",
        type=argument_types.path,
        metavar="FILE.json",
        help="write such a file: what --config says, and all that this replay could not execute",
    )
    parser.add_argument(
        "--profile",
        type=argument_types.ending(".json", ".json.gz"),
        metavar="FILE.json",
        help="write a Kineto trace of one further iteration, with a mark for each operation, for "
        "chrome://tracing or Perfetto; of several ranks, a name with {rank}",
    )
    parser.add_argument(
        "--execution-trace",
        type=argument_types.ending(".json", ".json.gz"),
        metavar="FILE.json",
        help="write an execution trace of one further iteration, which can be replayed in its "
        "turn; of several ranks, a name with {rank}",
    )
    parser.add_argument(
        "--dump",
        type=argument_types.ending(".py"),
        metavar="FILE.py",
        help="instead of replaying, write a Python file that does, with PyTorch alone: to report a "
        "fault of an operator (with --node) or of a part of a model (with --subgraph)",
    )


def _add_memory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tensor-allocation-mode",
        choices=[mode.value for mode in Mode],
        default=Mode.PRE_ALLOCATE.value,
        action=options.Agreeing,
        metavar="pre|lazy|stalloc",
        help="pre: inputs exist before the first iteration, as in the original job; lazy: every "
        "storage is allocated before its first use and freed after its last; stalloc: as lazy, at "
        "addresses planned ahead of time (default: pre)",
    )
    parser.add_argument(
        "--enable-lazy-tensor-allocation",
        dest="tensor_allocation_mode",
        action=options.Agreeing,
        nargs=0,
        const=Mode.LAZY_ALLOCATE.value,
        help="short for --tensor-allocation-mode lazy",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="the plan that stalloc serves, from et_replay plan; of several ranks the folder of "
        "their plans, or a name with {rank} (default: one made for the trace)",
    )
    _add_capacity(parser)


def _add_capacity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device-memory-threshold",
        type=argument_types.share,
        default=1.0,
        metavar="F",
        help="lazy mode: share of the device memory above which everything that the next operation "
        "does not need is freed, to be created again when needed (default: 1, never)",
    )
    parser.add_argument(
        "--device-memory",
        type=argument_types.size,
        metavar="SIZE",
        help="capacity of the device, such as 24GiB (default: all of it; if simulated, "
        "that of a captured run's GPU, else 80GiB)",
    )
    options.add_other_memory(parser)
    parser.add_argument(
        "--library-workspace",
        nargs="?",
        type=argument_types.size_or_none,
        const=DEFAULT_WORKSPACE,
        default=0,
        metavar="SIZE",
        help="add memory that libraries such as cuBLAS take and no trace records; without SIZE "
        "32MiB a thread that runs matrix products on cuda, nothing on other devices",
    )


def _add_allocator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allocator",
        type=argument_types.name,
        metavar="NAME[:SETTINGS]",
        help="the allocator, with settings in PYTORCH_ALLOC_CONF's syntax; et_replay compare "
        "--help lists them; on cuda one serves in place of PyTorch's own, whose name is torch "
        "there (default: native, on cuda torch, in mode stalloc that; of a history, as recorded)",
    )
    options.add_torch_version(parser)
    options.add_memory_fraction(parser, "for a history: ")
    parser.add_argument(
        "--explain",
        choices=[moment.value for moment in Moment],
        default=Moment.FAILURE.value,
        help="what to explain: a request that runs out of memory, or the peak (default: oom)",
    )
