"""What this package has to say within a user's script in, a line on stderr out."""

from __future__ import annotations

import os
import sys


def tell(text: str) -> None:
    """Write one line on stderr, which the script may have closed."""
    rank = os.environ.get("RANK")
    which = "" if rank is None else f" (rank {rank})"
    try:
        sys.stderr.write(f"et_replay{which}: {' '.join(text.split())}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
