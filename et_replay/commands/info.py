"""`et_replay info`: a trace in, one screen about what it holds out."""

from __future__ import annotations

import argparse

from et_replay.commands import options
from et_replay.commands.output import check_destination, warn, write_result
from et_replay.formats import open_trace
from et_replay.program import build_program, select_window
from et_replay.report.description import describe
from et_replay.report.document import document
from et_replay.report.info import info_object, info_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a description."""
    options.add_input(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe a trace: windows, operators, storages, peak memory, and what cannot be replayed."""
    check_destination(arguments.json, arguments.force, arguments.trace)
    trace = open_trace(arguments.trace, strict=arguments.strict)
    warn(trace.notes, arguments.quiet)
    program = build_program(trace, select_window(trace, options.window_of(arguments)))
    warn(program.notes, arguments.quiet)
    description = describe(program)
    write_result(
        info_text(description),
        document("info", [info_object(description)]),
        arguments.json,
        arguments.force,
    )
    return 0
