"""`et_replay compare`: tables, JSON, several inputs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_replay.commands import main
from et_replay.formats import open_recording

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
    names = {"native", "expandable", "stalloc", "direct", "ideal"}
    assert {row["allocator"] for row in found} == names
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


def test_a_planned_allocator_reserves_what_lives_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = ["--trace", MOE, "--allocator", "stalloc", "--iterations", "5"]
    assert main(["compare", *words, "--json", str(file)]) == 0
    (row,) = rows(file)
    plan = row["plan"]
    assert isinstance(plan, dict)
    assert plan["arena_bytes"] == plan["lower_bound_bytes"]
    assert plan["reused"] == plan["displaced"] == plan["fallback"] == {"requests": 0, "bytes": 0}
    # 217 inputs are there from the start; 671 storages come and go in each iteration.
    assert plan["planned"]["requests"] == 217 + 5 * 671
    assert row["peak_reserved_bytes"] <= 1.005 * row["peak_active_bytes"]  # type: ignore[operator]


def test_a_plan_file_is_served_to_what_it_was_made_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "--trace", MOE, "--tensor-allocation-mode", "pre", "--output", plan]) == 0
    words = ["compare", "--trace", MOE, "--allocator", "stalloc", "--plan", plan]
    assert main(words) == 0
    capsys.readouterr()

    assert main([*words, "--tensor-allocation-mode", "lazy"]) == 1
    error = capsys.readouterr().err
    assert "with --tensor-allocation-mode pre and --window ProfilerStep#2, not from" in error
    assert "with --tensor-allocation-mode lazy and --window ProfilerStep#2; the first diff" in error
    assert error.endswith("Make a plan for it with et_replay plan --tensor-allocation-mode lazy.\n")


@pytest.mark.parametrize("mode", [[], ["--tensor-allocation-mode", "stalloc"]])
def test_a_plan_made_by_default_is_served_as_it_was_made(mode: list[str], tmp_path: Path) -> None:
    plan, file = str(tmp_path / "plan.json"), tmp_path / "rows.json"
    assert main(["plan", "--trace", MOE, "--window", "1", "--output", plan]) == 0
    words = ["compare", "--trace", MOE, "--allocator", "stalloc", "--plan", plan, *mode]
    assert main([*words, "--json", str(file)]) == 0
    (row,) = rows(file)
    assert row["plan"]["planned"]["requests"] == 888  # type: ignore[index]


def test_a_plan_of_a_table_is_not_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, plan = tmp_path / "buffers.csv", str(tmp_path / "plan.json")
    trace.write_text("id,lower,upper,size\na,10,60,1024\nb,20,80,512\n")
    assert main(["plan", "--trace", str(trace), "--output", plan]) == 0
    words = ["compare", "--trace", str(trace), "--allocator", "stalloc", "--plan", plan]
    assert main(words) == 1
    assert capsys.readouterr().err == (
        f"et_replay: error: {plan} is a plan of a table of buffers ({trace}), for those buffers at"
        " their own ticks; compare takes a table as events and makes its own plan: leave out"
        " --plan.\n"
    )


def test_buffers_beyond_all_devices_are_out_of_memory_for_a_plan_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, file = tmp_path / "buffers.csv", tmp_path / "rows.json"
    trace.write_text(f"id,lower,upper,size\na,0,5,{10**18}\nb,1,6,{10**18}\n")
    words = ["compare", "--trace", str(trace), "--allocator", "stalloc", "--allocator", "native"]
    assert main([*words, "--json", str(file)]) == 3
    failures = {row["allocator"]: row["out_of_memory"]["requested_bytes"] for row in rows(file)}  # type: ignore[index]
    assert failures == {"stalloc": 2_000_000_000_001_572_864, "native": 10**18}


def test_more_than_can_be_planned_is_named_by_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "buffers.csv"
    trace.write_text(f"id,lower,upper,size\na,0,5,{2**61}\nb,1,6,1\n")
    assert main(["compare", "--trace", str(trace), "--allocator", "stalloc"]) == 1
    assert capsys.readouterr().err == (
        f"et_replay: error: {trace}: More than 2^61 bytes live at the same time.\n"
    )


def test_an_arena_that_does_not_fit_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--trace", MOE, "--allocator", "stalloc", "--device-memory", "600MiB"]
    assert main(words) == 3
    assert (
        "stalloc: The plan's arena of 698 MiB is taken from the device as a whole, and does not fit"
        " its 600 MiB" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--allocator", "native", "--plan", "x.json"], "--plan needs --allocator stalloc"),
        (["--trace", CONVNET, "--plan", "x.json"], "--plan FILE needs one --trace"),
        (["--plan", "."], "The folder . holds no plan"),
        (["--allocator", "jemalloc"], "jemalloc"),
        (["--allocator", "native:max_splt_size_mb:3"], "max_splt_size_mb"),
        (["--torch-version", "1.13"], "1.13"),
        (["--snapshot", "x.pickle"], "--snapshot needs one --trace and one --allocator"),
        (["--snapshot", 300 * "x"], "cannot be written: File name too long"),
        (["--snapshot", "-"], "--snapshot - is no file; only --json writes to stdout"),
        (["--plan", ""], "argument --plan: Expected a path, got ''"),
        (["--snapshot", "x", "--json", "x"], "--json and --snapshot both name x"),
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
    again = open_recording(file)
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
        "transformer_oom.pickle.gz",
    ]


def test_running_out_of_memory_among_several_inputs_ends_with_3(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = ["--trace", MOE, "--trace", CONVNET, "--allocator", "native", "--jobs", "2"]
    assert main(["compare", *words, "--device-memory", "600MiB", "--json", str(file)]) == 3
    assert [row["out_of_memory"] is None for row in rows(file)] == [False, True]


def test_one_of_a_thing_is_no_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "one.csv"
    trace.write_text("id,lower,upper,size\na,0,5,1024\n")
    words = ["--allocator", "stalloc", "--allocator", "expandable"]
    assert main(["compare", "--trace", str(trace), *words]) == 0
    out = capsys.readouterr().out
    assert "; 1 request of 1.00 KiB at planned addresses" in out
    assert "  1 map  " in out
