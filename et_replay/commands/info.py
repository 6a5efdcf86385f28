"""`et_replay info`: a trace, a captured run or a job in, one screen about what it holds out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from et_replay.commands import options
from et_replay.commands.input_files import is_folder, runs_at
from et_replay.commands.output import check_destination, progress_bar, warn, write_result
from et_replay.formats import open_trace
from et_replay.formats.captured_run import CapturedRun
from et_replay.program import build_program, select_window
from et_replay.ranks.files import is_pattern, rank_files
from et_replay.ranks.matching import Matching, match
from et_replay.report.captured_run import run_object, run_text
from et_replay.report.description import describe
from et_replay.report.document import JsonObject, document
from et_replay.report.info import info_object, info_text
from et_replay.report.matching import matching_object, matching_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a description."""
    options.add_input(parser)
    options.add_parallel(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe a trace: windows, operators, storages, peak memory, and what cannot be replayed.

    Of the folder of a job it tells whether the ranks' collectives fit together.
    """
    runs = runs_at(arguments.trace)
    for path in [arguments.trace, *(str(run.trace) for run in runs), *(run.source for run in runs)]:
        check_destination(arguments.json, arguments.force, path)
    files = _files_of_ranks(arguments.trace, runs)
    described = [_describe_run(run, arguments, files is not None) for run in runs]
    if files is None and not runs:
        described = [_describe(arguments.trace, arguments)]
    code = 0
    if files is not None:
        matching = _match(files, arguments)
        job = matching_text(arguments.trace, matching), matching_object(arguments.trace, matching)
        described.insert(0, job)
        code = 1 if matching.problem else 0
    write_result(
        "\n\n".join(text for text, _ in described),
        document("info", [result for _, result in described]),
        arguments.json,
        arguments.force,
    )
    return code


def _files_of_ranks(path: str, runs: Sequence[CapturedRun]) -> dict[int, Path] | None:
    """Find the traces of a job's ranks; None where the path is no job's, or has none of its own.

    A captured run may lack some, as where a process was killed.
    """
    of_folder = path != "-" and is_folder(Path(path))
    if runs and of_folder:
        traces = {run.header.rank: run.trace for run in runs if run.trace is not None}
        return traces if max(run.header.world_size for run in runs) > 1 and traces else None
    return rank_files(path) if of_folder or is_pattern(path) else None


def _match(files: dict[int, Path], arguments: argparse.Namespace) -> Matching:
    with progress_bar(arguments.quiet, unit="ranks") as progress:
        matching = match(
            files,
            jobs=arguments.jobs,
            backend=arguments.backend,
            strict=arguments.strict,
            progress=progress,
        )
    warn(matching.notes, arguments.quiet)
    return matching


def _describe(
    path: str, arguments: argparse.Namespace, matched: bool = False
) -> tuple[str, JsonObject]:
    """Describe a trace; matching the ranks says what is wrong with one, and of which rank."""
    trace = open_trace(path, strict=arguments.strict)
    warn(trace.notes, arguments.quiet or matched)
    program = build_program(trace, select_window(trace, options.window_of(arguments)))
    warn(program.notes, arguments.quiet)
    description = describe(program)
    return info_text(description), info_object(description)


def _describe_run(
    run: CapturedRun, arguments: argparse.Namespace, matched: bool
) -> tuple[str, JsonObject]:
    """Describe what a process told, and the execution trace that it wrote, if it wrote one."""
    warn(run.notes, arguments.quiet)
    text, result = run_text(run), run_object(run)
    if run.trace is None:
        return text, {"run": result}
    of_trace, fields = _describe(str(run.trace), arguments, matched)
    return f"{text}\n\n{of_trace}", {**fields, "run": result}
