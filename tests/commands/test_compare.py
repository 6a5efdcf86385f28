"""`et_replay compare`: tables, JSON, several inputs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_replay.commands import main
from et_replay.formats import open_history

TRACES = Path(__file__).resolve().parents[2] / "traces"
CONVNET, MOE = (str(TRACES / f"{name}_cuda.json.gz") for name in ("convnet", "moe"))


def rows(path: Path) -> list[dict[str, object]]:
    document = json.loads(path.read_text())
    assert document["command"] == "compare"
    found = document["results"]
    assert isinstance(found, list)
    return found


def test_rows_are_sorted_by_peak_reserved(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    assert main(["compare", "--trace", MOE, "--json", str(file)]) == 0
    found = rows(file)
    assert {row["allocator"] for row in found} == {"native", "expandable", "direct", "ideal"}
    reserved = [row["peak_reserved_bytes"] for row in found]
    assert reserved == sorted(reserved)  # type: ignore[type-var]
    assert found[0]["allocator"] == "ideal"


def test_a_row_has_the_documented_keys(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    main(["compare", "--trace", MOE, "--allocator", "native", "--json", str(file)])
    (row,) = rows(file)
    keys = {
        *("input", "allocator", "torch_version", "events", "peak_allocated_bytes"),
        *("peak_active_bytes", "peak_reserved_bytes", "fragmentation", "segments"),
        *("device_calls", "retries", "out_of_memory", "addresses"),
    }
    assert keys <= row.keys()
    assert (row["peak_allocated_bytes"], row["peak_reserved_bytes"]) == (735304704, 748683264)


def test_several_inputs_are_worked_on_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = ["--trace", CONVNET, "--trace", MOE, "--allocator", "ideal", "--jobs", "2"]
    assert main(["compare", *words, "--json", str(file)]) == 0
    assert [row["input"] for row in rows(file)] == [CONVNET, MOE]


def test_a_capacity_that_does_not_suffice_ends_with_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--trace", MOE, "--allocator", "native", "--device-memory", "600MiB"]
    assert main(["compare", *words]) == 3
    assert "of iteration 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--allocator", "jemalloc"], "jemalloc"),
        (["--allocator", "native:max_splt_size_mb:3"], "max_splt_size_mb"),
        (["--torch-version", "1.13"], "1.13"),
        (["--snapshot", "x.pickle"], "--snapshot needs one --trace and one --allocator"),
        (["--trace", CONVNET, "--trace", MOE, "--backend", "nothing"], "--backend nothing"),
    ],
)
def test_wrong_usage_is_one_sentence_and_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--trace", MOE, *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert complaint in error


def test_a_simulated_run_is_written_as_a_snapshot_that_gives_the_same_events(
    tmp_path: Path,
) -> None:
    file = tmp_path / "simulated.pickle"
    words = ["--trace", CONVNET, "--allocator", "native", "--snapshot", str(file)]
    assert main(["compare", *words]) == 0
    again = open_history(file)
    assert len(again.events) == 742
    assert [path.name for path in tmp_path.iterdir()] == ["simulated.pickle"]


def test_a_folder_stands_for_the_recordings_in_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = ["--trace", str(TRACES), "--allocator", "ideal", "--json", str(file)]
    assert main(["compare", *words]) == 0
    names = [Path(str(row["input"])).name for row in rows(file)]
    assert names == [
        "convnet_cuda.json.gz",
        "moe_cuda.json.gz",
        "transformer_cpu.json.gz",
        "transformer_cuda.json.gz",
    ]


def test_running_out_of_memory_among_several_inputs_ends_with_3(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = ["--trace", MOE, "--trace", CONVNET, "--allocator", "native", "--jobs", "2"]
    assert main(["compare", *words, "--device-memory", "600MiB", "--json", str(file)]) == 3
    assert [row["out_of_memory"] is None for row in rows(file)] == [False, True]
