"""The command line: argument words in, exit code out. Only here are errors printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from et_replay import __version__
from et_replay.commands import capture, compare, fit, info, plan, replay, run, timeline
from et_replay.commands.options import given
from et_replay.commands.output import say
from et_replay.errors import EtReplayError, UsageError

_COMMANDS = {
    "replay": replay,
    "info": info,
    "compare": compare,
    "fit": fit,
    "plan": plan,
    "timeline": timeline,
    "capture": capture,
    "run": run,
}
_EPILOG = """Without a command, et_replay replays; `et_replay replay --help` lists its options.

exit codes: 0 done, 1 the input or the replay failed, 2 wrong usage, 3 out of memory reproduced,
130 interrupted by Ctrl-C; capture and run end with that of their command"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        arguments = _parse(list(sys.argv[1:] if argv is None else argv))
        code: int = arguments.run(arguments)
        return code
    except EtReplayError as error:
        say(f"et_replay: error: {error}")
        return error.exit_code
    except MemoryError:
        say("et_replay: error: This machine's memory does not suffice for the input.")
        return EtReplayError.exit_code
    except OSError as error:  # such as a folder that may not be read
        named = "" if error.filename is None else f"{error.filename}: "
        say(f"et_replay: error: {named}{error.strerror or error}.")
        return EtReplayError.exit_code
    except KeyboardInterrupt:
        say("et_replay: interrupted")
        return 130


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parse(words: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="et_replay",
        description="Replay PyTorch execution traces: time and memory, without the model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"et_replay {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    subparsers = {}
    for name, command in _COMMANDS.items():
        description = command.run.__doc__ or ""
        subparser = subparsers[name] = commands.add_parser(
            name, help=description, description=description, allow_abbrev=False
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")):
        words = ["replay", *words]
    own = words[: words.index("--")] if "--" in words else words
    arguments, unknown = parser.parse_known_args(own)
    arguments.given = given(subparsers[words[0]], arguments)
    if unknown:
        way_out = "; the command to run goes after --" if hasattr(arguments, "script") else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{way_out}")
    if len(own) < len(words):
        if not hasattr(arguments, "script"):
            raise UsageError("Only et_replay capture and run take a command after --.")
        arguments.script = tuple(words[len(own) + 1 :])
    return arguments
