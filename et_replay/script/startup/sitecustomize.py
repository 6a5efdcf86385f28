"""A starting Python process in, the same one with a look-out for torch out.

Python imports this before a script that `et_replay.script.launch` runs. It then does what a
`sitecustomize` further down the path, which it hides, would have done.
"""

import sys
from os.path import abspath, dirname

_FOLDER = dirname(abspath(__file__))


def _look_out_for_torch() -> None:
    """Load this very et_replay, which the script's Python need not have, and nothing beside it."""
    try:
        sys.path.insert(0, dirname(dirname(dirname(_FOLDER))))
        try:
            import et_replay  # noqa: F401
        finally:
            del sys.path[0]
        from et_replay.script.on_torch import look_out

        look_out()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        sys.stderr.write(f"et_replay: warning: the script runs without et_replay: {reason}\n")


_look_out_for_torch()
sys.path[:] = [folder for folder in sys.path if abspath(folder) != _FOLDER]
del sys.modules["sitecustomize"]
__import__("sitecustomize")  # Python passes over that there is none, as it does without us
