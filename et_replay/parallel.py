"""Work on many tasks in, its results in the order of the tasks, from several processes, out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib

from et_replay.errors import UsageError

_Result = TypeVar("_Result")

_CLUSTERS = {"dask": ("distributed", "dask[distributed]"), "ray": ("ray.util.joblib", "ray")}
"""Of joblib's backends those that are clusters: the module that knows it, and its package."""


def in_parallel(
    work: Callable[..., _Result], tasks: Iterable[tuple[Any, ...]], jobs: int | None, backend: str
) -> Iterator[_Result]:
    """Yield `work(*task)` for each task; `jobs` at a time, None for as many as there are cores.

    `backend` is one of joblib's. dask and ray work on the cluster that their own settings name
    (DASK_SCHEDULER_ADDRESS, RAY_ADDRESS), else on one of this machine. Raises UsageError for a
    backend that is not there.
    """
    try:
        with _cluster(backend, jobs), joblib.parallel_config(backend=backend, n_jobs=jobs or -1):
            active, _ = joblib.parallel.get_active_backend()
            one_by_one = active.supports_return_generator  # that of ray does not
            yield from joblib.Parallel(return_as="generator" if one_by_one else "list")(
                joblib.delayed(work)(*task) for task in tasks
            )
    except ValueError as error:
        raise UsageError(f"--backend {backend}: {error}") from error


@contextmanager
def _cluster(backend: str, jobs: int | None) -> Iterator[None]:
    """Make a backend known to joblib, and its cluster ready."""
    if backend not in _CLUSTERS:
        yield
        return
    name, package = _CLUSTERS[backend]
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"--backend {backend} needs a package that is not installed: pip install '{package}',"
            " or --backend loky."
        ) from error
    if backend == "ray":
        module.register_ray()
        yield
        return
    address = importlib.import_module("dask").config.get("scheduler-address", None)
    local = {} if address else {"n_workers": jobs, "threads_per_worker": 1}
    with module.Client(**local):
        yield
