"""The words of a shell in, the exit code of et_replay out; `python -m et_replay` is `et_replay`.

The commands are imported here alone, so that Ctrl-C ends the import as it ends everything else.
"""

import sys


def main() -> int:
    """Run the command that the words of this process name."""
    try:
        from et_replay.commands import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("et_replay: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
