"""An execution trace in, the sources of the kernels it names out."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

# Some versions of torch write a path of this machine before the name.
_SOURCE = re.compile(rb'"value": "(?:[^"]*[/\\])?([^"/\\]+\.py)"')


def kernel_sources(trace: bytes, folder: Path) -> dict[str, Path]:
    """Find the sources that a trace names.

    The observer saves in `folder` those that this process compiled, and of whole graphs; what other
    processes compiled for it, or an earlier run, lies in the cache of the compiler alone.
    """
    from torch._inductor.codecache import cache_dir  # type: ignore[attr-defined]

    cache = Path(cache_dir())
    found = {}
    for name in {match.decode() for match in _SOURCE.findall(trace)}:
        for path in (folder / name, cache / name[1:3] / name):
            if path.is_file():
                found[name] = path
                break
    return found


def save_kernel_sources(trace: Path, folder: Path) -> None:
    """Add to `folder` what it lacks of the sources that a trace names; gone if empty."""
    if "torch._inductor.codecache" in sys.modules:
        for name, path in kernel_sources(trace.read_bytes(), folder).items():
            folder.mkdir(exist_ok=True)
            if path.parent != folder:
                shutil.copyfile(path, folder / name)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
