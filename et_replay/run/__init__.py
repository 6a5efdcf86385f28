"""A script's processes served by an allocator of this project, iteration by iteration."""

from collections.abc import Mapping
from typing import Any


def begin(settings: Mapping[str, Any]) -> None:
    """Serve this process, which has just imported torch, by RunSettings in their JSON form."""
    from et_replay.run.serving import serve

    serve(settings)
