"""A trace's path in, the folders and files that the observer saved beside it out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def resource_folders(trace: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the folders of resources beside a trace, which may have been compressed since."""
    return tuple(folder for folder in possible_folders(trace) if folder.is_dir())


def possible_folders(trace: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Name the folders that would be looked into, there or not."""
    path = Path(trace)
    names = [f"{path.name}_resources", f"{path.stem}_resources"]
    if path.suffix != ".json":
        names.append(f"{Path(path.stem).stem}_resources")
    return tuple(path.parent / name for name in names)


def kernel_source(folders: Sequence[Path], kernel_file: str) -> Path | None:
    """Find the source of a generated kernel.

    Of the recorded name only its last part counts: some versions of torch write a path of the
    original machine, and no trace may name a file outside of its folders.
    """
    name = Path(kernel_file).name
    if not name.endswith(".py"):
        return None
    # os.path takes whatever a damaged trace may call a file; Path raises for names too long.
    return next((folder / name for folder in folders if os.path.isfile(folder / name)), None)
