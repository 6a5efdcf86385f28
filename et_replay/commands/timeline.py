"""`et_replay timeline`: memory over time as a page, pictures, a snapshot, a trace or a table."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from et_replay.commands import argument_types, options
from et_replay.commands.input_files import file_names
from et_replay.commands.inputs import (
    add_allocators,
    add_inputs,
    add_job_mode,
    allocators_of,
    inputs_of,
)
from et_replay.commands.output import (
    check_destination,
    check_distinct,
    say,
    warn,
    write_result,
    write_whole,
)
from et_replay.commands.pages import maps_of, snapshot_of
from et_replay.comparison import version_to_imitate
from et_replay.errors import UsageError
from et_replay.memory_map import MemoryMap
from et_replay.program import Mode
from et_replay.report.document import document
from et_replay.report.event_table import event_table
from et_replay.report.page import page
from et_replay.report.perfetto import perfetto_trace
from et_replay.report.plot import plot
from et_replay.report.timeline import timeline_objects, timeline_text
from et_replay.serving import capacity_for, share_of, with_known_settings
from et_replay.simulation import PLANNED

_PAGE = ".html"
_DEFAULT = ("native", "expandable", PLANNED)


_FORMS: Mapping[str, Callable[[MemoryMap], bytes]] = {
    ".png": lambda each: plot(each, "png"),
    ".svg": lambda each: plot(each, "svg"),
    ".pickle": snapshot_of,
    ".perfetto.json": lambda each: perfetto_trace(each).encode(),
    ".csv": lambda each: event_table(each).encode(),
}
"""What a file's name ends in, and how the map of one allocator is written there."""
_DRAWN = (".png", ".svg")
"""Those that an optional package draws."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a timeline."""
    add_inputs(parser, several=False)
    parser.add_argument(
        "--output",
        type=argument_types.path,
        metavar="FILE",
        help=f"what to write, told by how its name ends: {_PAGE} (one page, all allocators as "
        f"tabs), {', '.join(_FORMS)} (one allocator) (default: the input's name with {_PAGE})",
    )
    add_allocators(parser, f"{', '.join(_DEFAULT)} on a page, else native")
    add_job_mode(parser)
    options.add_torch_version(parser)
    options.add_device_memory(parser)
    options.add_memory_fraction(parser)
    options.add_output(parser, "--json and --output")


def run(arguments: argparse.Namespace) -> int:
    """Show memory over time: the map of addresses, the stack of live bytes, peak and failures."""
    inputs = inputs_of(arguments, Mode.LAZY_ALLOCATE)
    if len(inputs) != 1:
        names = file_names([source.path for source in inputs])
        raise UsageError(f"A timeline is of one input, got {len(inputs)}: give one of {names}.")
    source = inputs[0]
    output = arguments.output or f"{_stem(source.path)}{_PAGE}"
    form = _form_of(output)
    check_distinct((("--output", output), ("--json", arguments.json)))
    allocators = _allocators(arguments, output, form)
    check_destination(output, arguments.force, source.path, "--output")
    check_destination(arguments.json, arguments.force, source.path)
    asked = source.version(arguments.torch_version)
    history = with_known_settings(source.history(), asked)
    warn(history.notes, arguments.quiet)
    device_memory = arguments.device_memory
    fraction = share_of(history, arguments.memory_fraction, device_memory)
    _, version = version_to_imitate(history, asked, device_memory, fraction)
    capacity = capacity_for(history, device_memory)
    maps = maps_of(history, allocators, capacity, version, fraction=fraction)
    content = _FORMS[form](maps[0]) if form else page(maps).encode()
    write_whole(Path(output), content, arguments.force)
    write_result(
        timeline_text(maps),
        document("timeline", timeline_objects(maps, output)),
        arguments.json,
        arguments.force,
    )
    say(f"Written {output}")
    return 0


def _allocators(arguments: argparse.Namespace, output: str, form: str) -> tuple[str, ...]:
    allocators = allocators_of(arguments, _DEFAULT[:1] if form else _DEFAULT)
    if form and len(allocators) > 1:
        raise UsageError(f"{output} shows one allocator, got {len(allocators)}; only {_PAGE} more.")
    return allocators


def _form_of(output: str) -> str:
    """Return the ending that tells the form of a file; "" for a page."""
    if output.endswith(_PAGE):
        return ""
    for form in _FORMS:
        if output.endswith(form):
            if form in _DRAWN and importlib.util.find_spec("matplotlib") is None:
                raise UsageError(
                    f"--output {output} needs matplotlib, which is not installed: pip install"
                    f" 'et_replay[plot]', or give a name that ends in {_PAGE}."
                )
            return form
    known = ", ".join((_PAGE, *_FORMS))
    raise UsageError(f"--output {output}: expected a name that ends in {known}.")


def _stem(path: str) -> str:
    if path == "-":
        return "timeline"
    name = Path(path).name
    for suffix in (".gz", ".xz", ".zst", ".json", ".pickle", ".pkl", ".csv"):
        name = name.removesuffix(suffix)
    return name or "timeline"
