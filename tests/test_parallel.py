"""Work in parallel: results in order, by every backend, and a backend that is not there."""

from __future__ import annotations

import sys

import pytest

from et_replay.errors import UsageError
from et_replay.parallel import in_parallel

TASKS = [(7, 2), (9, 4), (23, 5)]
RESULTS = [(3, 1), (2, 1), (4, 3)]


@pytest.mark.parametrize(
    ("backend", "package"),
    [("loky", "joblib"), ("threading", "joblib"), ("dask", "distributed"), ("ray", "ray")],
)
def test_results_come_in_the_order_of_the_tasks(backend: str, package: str) -> None:
    pytest.importorskip(package)
    assert list(in_parallel(divmod, TASKS, 2, backend)) == RESULTS


def test_a_backend_that_joblib_does_not_know_is_named() -> None:
    with pytest.raises(UsageError, match=r"--backend nothing: Invalid backend: nothing"):
        list(in_parallel(divmod, TASKS, 2, "nothing"))


@pytest.mark.parametrize(
    ("backend", "module", "package"),
    [("dask", "distributed", r"dask\[distributed\]"), ("ray", "ray.util.joblib", "ray")],
)
def test_a_cluster_whose_package_is_missing_is_told(
    backend: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=f"--backend {backend} needs .* pip install '{package}'"):
        list(in_parallel(divmod, TASKS, 2, backend))
