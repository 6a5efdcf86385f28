"""`et_replay plan`: plans of traces, histories and tables made, written, checked and described."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from et_replay.commands import main

TRACES = Path(__file__).resolve().parents[2] / "traces"
CONVNET, MOE = (str(TRACES / f"{name}_cuda.json.gz") for name in ("convnet", "moe"))
LONG = 300 * "x"
CROSSING = "id,lower,upper,size\na,10,60,1024\nb,100,150,1024\nc,180,220,512\n"


@pytest.fixture
def table(tmp_path: Path) -> str:
    file = tmp_path / "buffers.csv"
    file.write_text(CROSSING)
    return str(file)


def result(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "plan"
    (found,) = document["results"]
    assert isinstance(found, dict)
    return found


def test_a_trace_is_planned_at_its_lower_bound(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, "--trace", MOE)

    assert found["input"] == MOE
    assert found["arena_bytes"] == found["lower_bound_bytes"]
    assert found["proven"] is True
    assert found["planned_storages"] == found["storages"] == 888
    assert found["planning_time_ns"] > 0
    assert found["method"]


def test_a_table_is_written_with_offsets(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "planned.csv"
    found = result(capsys, "--trace", table, "--output", str(output))

    assert (found["arena_bytes"], found["lower_bound_bytes"]) == (1024, 1024)
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert [row["offset"] for row in rows] == ["0", "0", "0"]


def test_a_buffer_that_crosses_the_end_of_the_iteration_is_kept_apart(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result(capsys, "--trace", table, "--iteration", "100:200")

    assert (found["arena_bytes"], found["lower_bound_bytes"]) == (1536, 1536)
    assert found["iteration_ticks"] == [100, 200]
    assert found["classes"]["crossing"] == {"storages": 1, "bytes": 512}


def test_the_ticks_of_the_report_are_those_of_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--trace", MOE, "--tensor-allocation-mode", "job"]
    assert main(["plan", *words, "--iteration", "auto"]) == 0
    assert "ticks 2825 to 4199 repeat" in capsys.readouterr().out
    of_all = result(capsys, *words, "--iteration", "auto")
    of_one = result(capsys, *words, "--iteration", "2825:4199")
    for key in ("iteration_ticks", "arena_bytes", "lower_bound_bytes"):
        assert of_one[key] == of_all[key]


def test_a_plan_file_is_checked_against_what_it_was_made_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "moe.plan.json")
    assert main(["plan", "--trace", MOE, "--output", plan]) == 0
    assert f"Written      {plan}" in capsys.readouterr().out

    assert main(["plan", "--check", plan, "--trace", MOE]) == 0
    assert f"made for {MOE}" in capsys.readouterr().out
    assert main(["plan", "--check", plan, "--trace", CONVNET]) == 1
    assert "the first difference is storage 0" in capsys.readouterr().err


def test_a_plan_of_an_iteration_of_a_table_is_checked_as_such(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "--trace", table, "--iteration", "100:200", "--output", plan]) == 0
    assert main(["plan", "--check", plan, "--trace", table]) == 0
    assert "ticks 100 to 200" in capsys.readouterr().out


def test_several_inputs_are_written_to_a_folder(tmp_path: Path) -> None:
    words = ["--trace", CONVNET, "--trace", MOE, "--jobs", "2", "--output", str(tmp_path)]
    assert main(["plan", *words]) == 0
    assert {file.name for file in tmp_path.iterdir()} == {
        "convnet_cuda.plan.json",
        "moe_cuda.plan.json",
    }


def test_the_plan_of_what_is_no_table_is_none_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plan.csv"
    assert main(["plan", "--trace", CONVNET, "--output", str(output)]) == 2
    assert f"{CONVNET} is no CSV of buffers, so its plan is none" in capsys.readouterr().err
    assert not output.exists()


def test_a_folder_is_not_left_behind_without_a_plan(table: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("id,lower,upper,size\na,2,1,512\n")
    words = ["--trace", table, "--trace", str(broken), "--jobs", "1"]

    assert main(["plan", *words, "--output", str(tmp_path / "all" / "plans")]) == 1
    assert not (tmp_path / "all").exists()

    (tmp_path / "there").mkdir()
    assert main(["plan", *words, "--output", str(tmp_path / "there")]) == 1
    assert (tmp_path / "there").is_dir()


def test_a_plan_file_is_not_overwritten_without_force(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plan.json"
    output.write_text("precious")
    assert main(["plan", "--trace", table, "--output", str(output)]) == 2
    assert "--force" in capsys.readouterr().err
    assert output.read_text() == "precious"

    assert main(["plan", "--trace", table, "--output", str(output), "--force"]) == 0
    assert json.loads(output.read_text())["arena_bytes"] == 1024


def test_the_input_is_never_overwritten(table: str) -> None:
    assert main(["plan", "--trace", table, "--output", table, "--force"]) == 2
    assert Path(table).read_text() == CROSSING


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "--trace"),
        (["--trace", "TABLE", "--iteration", "9:3"], 2, "after the beginning"),
        (["--trace", "TABLE", "--iteration", "x"], 2, "BEGIN:END"),
        (["--trace", "TABLE", "--iteration", "auto"], 2, "BEGIN:END"),
        (["--trace", "TABLE", "--iteration", "10:100"], 1, "buffers.csv: Buffer 'b' starts at 100"),
        (["--trace", "TABLE", "--iteration", "900:999"], 2, "the last one begins at tick 180."),
        (["--trace", MOE, "--iteration", "0:99999999"], 2, "events there are"),
        (["--trace", MOE, "--iteration", "0:1"], 1, "Nothing in the iterations"),
        (["--trace", "TABLE", "--timeout", "0"], 2, "above 0"),
        (["--trace", "TABLE", "--output", "no/such/folder/x.json"], 2, "no folder"),
        (["--trace", "TABLE", "--trace", MOE, "--output", "x.json"], 2, "must name a folder"),
        (["--check", "TABLE"], 1, "not a plan file"),
        (["--check", "x", "--output", "y"], 2, "--output is for making a plan"),
        (["--trace", "TABLE", "--iteration", f"0:{10**20}"], 2, "Expected an end of at most"),
        (["--trace", "TABLE", "--timeout", "1e300"], 2, "up to 1000000000"),
        (["--trace", "TABLE", "--iteration=-5:900"], 2, "Expected a beginning of 0 or more"),
        (["--trace", "TABLE", "--output", "-"], 2, "--output - is no file; only --json writes to"),
        (["--trace", "TABLE", "--output", ""], 2, "argument --output: Expected a path, got ''"),
        (["--trace", "TABLE", "--json", ""], 2, "argument --json: Expected a path, got ''"),
        (["--trace", ""], 2, "argument --trace: Expected a path, got ''"),
        (["--check", ""], 2, "argument --check: Expected a path, got ''"),
        (
            ["--trace", "TABLE", "--output", "x", "--json", "./x"],
            2,
            "--output and --json both name",
        ),
        (["--trace", "TABLE", "--output", LONG], 2, "cannot be written: File name too long"),
        (["--trace", "TABLE", "--json", LONG], 2, "cannot be written: File name too long"),
        (["--trace", LONG], 1, "File name too long"),
        (["--check", LONG], 1, "File name too long"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: list[str],
    code: int,
    complaint: str,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", *(table if word == "TABLE" else word for word in words)]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert complaint in error


class Piped:
    """Standard input that holds some bytes, once."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize("content", [CROSSING.encode(), Path(MOE).read_bytes()])
def test_standard_input_is_planned(
    content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Piped(content))
    assert main(["plan", "--trace", "-"]) == 0
    assert "Input        standard input" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--tensor-allocation-mode", "pre"], ["--window", "1"], []])
def test_a_plan_is_checked_as_its_trace_was_read(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "--trace", MOE, *words, "--output", plan]) == 0
    assert main(["plan", "--check", plan, "--trace", MOE]) == 0
    capsys.readouterr()

    other = ["--tensor-allocation-mode", "lazy" if "pre" in words else "pre", "--window", "first"]
    assert main(["plan", "--check", plan, "--trace", MOE, *other]) == 1
    error = capsys.readouterr().err
    made = "pre" if "pre" in words else "stalloc"
    assert f"made from {MOE} with --tensor-allocation-mode {made} and --window Profiler" in error
    assert f"not from {MOE} with --tensor-allocation-mode {other[1]} and --window Profi" in error


def test_a_name_that_is_no_utf8_is_no_hindrance(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    trace, output = tmp_path / f"{name}.csv", tmp_path / "plan.json"
    trace.write_text(CROSSING)
    assert main(["plan", "--trace", str(trace), "--output", str(output)]) == 0
    assert json.loads(output.read_text())["source"].endswith("caf\\udce9.csv")
    assert main(["plan", "--check", str(output), "--trace", str(trace)]) == 0


def test_an_output_through_a_circle_of_links_is_refused(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert main(["plan", "--trace", table, "--output", str(tmp_path / "a")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "cannot be written" in error


def test_rows_that_are_left_out_are_told_or_strictly_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text(CROSSING + "d,0,5,four\n")
    note = (
        "Rows that are no buffer were left out: 1, first line 5: expected a whole number in the"
        " column size, got 'four'."
    )
    assert result(capsys, "--trace", str(trace), "--quiet")["notes"] == [note]
    assert main(["plan", "--trace", str(trace), "--strict"]) == 1
    assert (
        f"{trace} is damaged: In line 5: expected a whole number in the column size, got 'four'."
        in capsys.readouterr().err
    )


def test_what_cannot_be_planned_is_named_by_file_and_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "fixed.csv"
    trace.write_text("id,lower,upper,size,offset\nw,0,5,8,0\nv,3,9,8,4\n")
    assert main(["plan", "--trace", str(trace)]) == 1
    assert (
        f"{trace}: The fixed offsets of buffer 'w' and buffer 'v' overlap at time 3."
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["plan", "compare", "fit"])
def test_a_table_without_a_buffer_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    trace, output = tmp_path / "empty.csv", tmp_path / "output.csv"
    trace.write_text("id,lower,upper,size\n")
    words = ["--output", str(output)] if command == "plan" else []
    assert main([command, "--trace", str(trace), *words]) == 1
    assert f"{trace} holds no allocation, so there is nothing to do.\n" in capsys.readouterr().err
    assert not output.exists()


def test_a_log_whose_sizes_no_device_has_is_refused_with_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "mem_log_dev0.txt"
    trace.write_text("1 0x10 9223372036854775807 0\n1 0x20 9223372036854775807 0\n")
    assert main(["plan", "--trace", str(trace)]) == 1
    assert (
        f"{trace} holds no allocation, so there is nothing to do. Lines that could not be read were"
        " left out: 2, first line 1.\n"
    ) in capsys.readouterr().err


PINNED = "id,lower,upper,size,offset\na,0,3,4,1000000\nb,0,9,4,\n"
LOW = "id,lower,upper,size,offset\na,0,3,4,4\nb,0,9,4,\n"
ALIGNED = "id,lower,upper,size,alignment\n" + "".join(f"{n},0,9,4,512\n" for n in range(100))


@pytest.mark.parametrize(
    ("table", "words", "bound"),
    [
        (PINNED, [], "977 KiB forced by a fixed offset"),
        (PINNED, ["--iteration", "0:9"], "977 KiB forced by a fixed offset"),
        (LOW, [], "8 B live at once"),
        (CROSSING, ["--iteration", "90:200"], "1.50 KiB live at once"),
        (ALIGNED, [], "49.5 KiB live at once"),
    ],
)
def test_the_lower_bound_is_named_by_what_forces_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, words: list[str], bound: str
) -> None:
    trace, plan = tmp_path / "table.csv", tmp_path / "table.plan.json"
    trace.write_text(table)
    assert main(["plan", "--trace", str(trace), "--output", str(plan), *words]) == 0
    assert f"Lower bound  {bound}\n" in capsys.readouterr().out
    assert main(["plan", "--check", str(plan)]) == 0
    assert f"Lower bound  {bound}\n" in capsys.readouterr().out


def test_plan_files_keep_the_dots_of_their_inputs(table: str, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("resnet_1.0.3.csv", "resnet_1.0.4.csv", "v1.2"):
        (folder / name).write_text(CROSSING)
    output = tmp_path / "plans"
    output.mkdir()
    words = ["--trace", str(folder), "--jobs", "1", "--output", str(output)]
    assert main(["plan", *words]) == 0
    assert sorted(file.name for file in output.iterdir()) == [
        "resnet_1.0.3.plan.json",
        "resnet_1.0.4.plan.json",
        "v1.2.plan.json",
    ]
