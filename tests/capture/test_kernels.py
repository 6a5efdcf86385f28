"""Sources of kernels are found beside a trace, or in the cache of the compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from et_replay.capture.kernels import kernel_sources, save_kernel_sources

TRACE = (
    b'{"name": "kernel_file", "type": "string", "value": "cab1.py"}'
    b'{"name": "kernel_file", "type": "string", "value": "/tmp/of/rank/cde2.py"}'
    b'{"name": "kernel_file", "type": "string", "value": "cgone.py"}'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache/de").mkdir(parents=True)
    (tmp_path / "cache/de/cde2.py").write_text("cached")
    folder = tmp_path / "rank-0.et_resources"
    folder.mkdir()
    (folder / "cab1.py").write_text("saved")
    return folder


def test_sources_are_those_saved_and_those_cached(folder: Path) -> None:
    found = {name: path.read_text() for name, path in kernel_sources(TRACE, folder).items()}
    assert found == {"cab1.py": "saved", "cde2.py": "cached"}


def test_the_folder_gets_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "rank-0.et.json"
    trace.write_bytes(TRACE)
    save_kernel_sources(trace, folder)
    assert sorted(file.name for file in folder.iterdir()) == ["cab1.py", "cde2.py"]


def test_an_empty_folder_goes(tmp_path: Path) -> None:
    trace = tmp_path / "rank-0.et.json"
    trace.write_bytes(b"{}")
    folder = tmp_path / "rank-0.et_resources"
    folder.mkdir()
    save_kernel_sources(trace, folder)
    assert not folder.exists()
