"""Work on many tasks in, its results in the order of the tasks, from several processes, out."""

from __future__ import annotations

import importlib
import multiprocessing.resource_tracker
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn, TypeVar

import joblib

from et_replay.errors import EtReplayError, UsageError

_Result = TypeVar("_Result")

_MANAGER = "ExecutorManagerThread"
"""The name of the thread by which loky gives work to its processes."""
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
    with _cluster(backend, jobs), _configured(backend, jobs):
        active, _ = joblib.parallel.get_active_backend()
        one_by_one = active.supports_return_generator  # that of ray does not
        parallel = joblib.Parallel(return_as="generator" if one_by_one else "list")
        calls = (joblib.delayed(work)(*task) for task in tasks)
        with ExitStack() as ends, _ended_by_sigterm():
            with _untold_of_interrupts() if backend == "loky" else nullcontext():
                results = parallel(calls)
                if one_by_one:
                    ends.callback(_close, results)
            try:
                for result in results:  # noqa: UP028 - `yield from` would close them, aloud
                    yield result
            except BrokenExecutor as error:
                raise EtReplayError(
                    "A process that worked on a part ended without a result, as it does where the"
                    " machine's memory runs out: --jobs 1 needs least."
                ) from error


def _configured(backend: str, jobs: int | None) -> AbstractContextManager[object]:
    """Let joblib use a backend."""
    try:
        joblib.cpu_count()
    except ValueError as error:
        raise UsageError(
            "The environment's LOKY_MAX_CPU_COUNT, which limits the processes, is"
            f" {os.environ.get('LOKY_MAX_CPU_COUNT')!r}, expected a whole number above 0."
        ) from error
    try:
        configured: AbstractContextManager[object] = joblib.parallel_config(
            backend=backend, n_jobs=jobs or -1
        )
    except ValueError as error:
        raise UsageError(
            f"--backend {backend} is none that joblib knows, expected loky, threading, dask or ray."
        ) from error
    return configured


def _close(results: Generator[object]) -> None:
    """End the work, without the warning of joblib that there were results to come."""
    with warnings.catch_warnings(), untold_of_forgotten_work():
        warnings.simplefilter("ignore")
        results.close()


@contextmanager
def untold_of_forgotten_work() -> Iterator[None]:
    """Keep loky's thread from telling a KeyError of its own.

    Once it has ended its workers it looks for the work that it had for them, and has forgotten that
    by then (ExecutorManagerThread.run in loky's process_executor.py).
    """
    tell = threading.excepthook

    def tell_others(failure: threading.ExceptHookArgs) -> None:
        thread = failure.thread
        if thread is None or (thread.name, failure.exc_type) != (_MANAGER, KeyError):
            tell(failure)

    threading.excepthook = tell_others
    try:
        yield
    finally:
        threading.excepthook = tell


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, too, end the processes that work for this one, before it ends itself."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


@contextmanager
def _untold_of_interrupts() -> Iterator[None]:
    """Keep Ctrl-C, which a terminal sends to all its processes, from those started meanwhile.

    They inherit that SIGINT is blocked, as do those that threads started meanwhile start later.
    This process, which ends them, gets it afterwards: an exception amid the start of a worker would
    leave one that nobody knows of. The tracker of `multiprocessing` is started before, as its start
    unblocks SIGINT.
    """
    multiprocessing.resource_tracker.ensure_running()
    came: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    # A thread that does not block SIGINT, say of a library, may get it in the main one's place.
    handler = signal.signal(signal.SIGINT, lambda *_: came.append(1)) if in_main else None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


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
