"""`et_replay info`: a trace or a captured run in, one screen about what it holds out."""

from __future__ import annotations

import argparse

from et_replay.commands import options
from et_replay.commands.output import check_destination, warn, write_result
from et_replay.formats import open_trace
from et_replay.formats.captured_run import CapturedRun
from et_replay.program import build_program, select_window
from et_replay.report.captured_run import run_object, run_text
from et_replay.report.description import describe
from et_replay.report.document import JsonObject, document
from et_replay.report.info import info_object, info_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a description."""
    options.add_input(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe a trace: windows, operators, storages, peak memory, and what cannot be replayed."""
    runs = options.runs_at(arguments.trace)
    for path in [arguments.trace, *(str(run.trace) for run in runs), *(run.source for run in runs)]:
        check_destination(arguments.json, arguments.force, path)
    if runs:
        described = [_describe_run(run, arguments) for run in runs]
    else:
        described = [_describe(arguments.trace, arguments)]
    write_result(
        "\n\n".join(text for text, _ in described),
        document("info", [result for _, result in described]),
        arguments.json,
        arguments.force,
    )
    return 0


def _describe(path: str, arguments: argparse.Namespace) -> tuple[str, JsonObject]:
    trace = open_trace(path, strict=arguments.strict)
    warn(trace.notes, arguments.quiet)
    program = build_program(trace, select_window(trace, options.window_of(arguments)))
    warn(program.notes, arguments.quiet)
    description = describe(program)
    return info_text(description), info_object(description)


def _describe_run(run: CapturedRun, arguments: argparse.Namespace) -> tuple[str, JsonObject]:
    """Describe what a process told, and the execution trace that it wrote, if it wrote one."""
    warn(run.notes, arguments.quiet)
    text, result = run_text(run), run_object(run)
    if run.trace is None:
        return text, {"run": result}
    of_trace, fields = _describe(str(run.trace), arguments)
    return f"{text}\n\n{of_trace}", {**fields, "run": result}
