"""`et_replay` on memory histories: exit codes, screens, JSON, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from snapshot_builder import block, entry, freed, segment, snapshot

from et_replay.commands import main
from et_replay.explain.way_out import ALLOCATORS

MIB = 2**20
A, B = 64 * MIB, 256 * MIB
CONVNET = str(Path(__file__).resolve().parents[2] / "traces" / "convnet_cuda.json.gz")


def written(path: Path, segments: list[dict], trace: list[dict]) -> str:
    path.write_text(json.dumps(snapshot(segments, trace)))
    return str(path)


@pytest.fixture
def oom(tmp_path: Path) -> str:
    """A job of 60 MiB that asked for 50 MiB more of a device of 100 MiB."""
    trace = [
        entry("segment_alloc", A, 60 * MIB),
        entry("alloc", A, 60 * MIB),
        entry("oom", 40 * MIB, 50 * MIB),
    ]
    return written(tmp_path / "oom.json", [segment(A, block(60 * MIB))], trace)


@pytest.fixture
def fragmented(tmp_path: Path) -> str:
    """A job that frees 60 MiB, keeps 2 MiB of that, and then needs 60 MiB again: 120 MiB."""
    trace = [
        entry("segment_alloc", A, 60 * MIB),
        entry("alloc", A, 60 * MIB),
        *freed(A, 60 * MIB),
        entry("alloc", A, 2 * MIB),
        entry("segment_alloc", B, 60 * MIB),
        entry("alloc", B, 60 * MIB),
    ]
    state = [segment(A, block(2 * MIB), block(58 * MIB, "inactive")), segment(B, block(60 * MIB))]
    return written(tmp_path / "fragmented.json", state, trace)


def replayed(tmp_path: Path, code: int, *words: str) -> dict[str, Any]:
    file = tmp_path / "result.json"
    assert main([*words, "--json", str(file), "--force"]) == code
    document = json.loads(file.read_text())
    assert document["command"] == "replay"
    (result,) = document["results"]
    return dict(result)


def test_a_recorded_oom_comes_again_and_ends_with_3(
    oom: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = replayed(tmp_path, 3, "--trace", oom)
    out, _ = capsys.readouterr()
    assert "100 MiB (what the file proves that PyTorch could get)" in out
    assert "Out of memory: a request of 50.0 MiB does not fit the device of 100 MiB" in out
    failure = result["out_of_memory"]
    assert failure["requested_bytes"] == 50 * MIB
    assert failure["capacity_bytes"] == 100 * MIB
    assert (failure["allocated_bytes"], failure["reserved_bytes"]) == (60 * MIB, 60 * MIB)
    failures = result["explanation"]["failures"]
    assert failures == {"new_events": [], "reproduced_events": [1], "absent_events": []}


@pytest.mark.parametrize(
    "words",
    [(), ("--device-memory", "150109880320", "--memory-fraction", "0.010478084431531176")],
    ids=["as the file proves", "as the job was limited"],
)
def test_a_job_that_was_limited_fails_as_it_did(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The error was: 1.25 GiB allocated, and 99.34 MiB reserved but unallocated."""
    sample = Path(__file__).resolve().parents[2] / "traces/transformer_oom.pickle.gz"
    result = replayed(tmp_path, 3, "--trace", str(sample), *words, "--quiet")
    failure = result["out_of_memory"]
    unallocated = failure["reserved_bytes"] - failure["allocated_bytes"]
    assert failure["requested_bytes"] == 132 * MIB
    assert f"{unallocated / MIB:.2f}" == "99.34"
    assert f"{failure['allocated_bytes'] / 2**30:.2f}" == "1.25"
    assert result["peak_reserved_bytes"] == 1_572_864_000


def test_the_way_out_of_a_recorded_oom_says_what_each_allocator_needs(
    oom: str, tmp_path: Path
) -> None:
    options = {o["allocator"]: o for o in replayed(tmp_path, 3, "--trace", oom)["way_out"]}
    assert set(options) == set(ALLOCATORS)
    assert not any(option["fits"] for option in options.values())
    assert options["native"]["device_memory_bytes"] == 110 * MIB
    assert options["ideal"]["room_bytes"] == -10 * MIB


def test_a_smaller_device_fails_where_the_job_would_and_the_first_screen_says_why(
    fragmented: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", fragmented, "--device-memory", "100MiB"]) == 3
    out, err = capsys.readouterr()
    assert err == ""
    assert "simulated, 100 MiB\n" in out
    assert "Out of memory: a request of 60.0 MiB does not fit the device of 100 MiB" in out
    assert "What was live: 2.00 MiB" in out
    assert "58.0 MiB are holes in 1 segment pinned by 1 live block of 2.00 MiB" in out
    table = out[out.index("What would fit 100 MiB") :]
    (line,) = (line for line in table.splitlines() if line.split()[:1] == ["expandable"])
    assert "yes" in line
    assert line.endswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    (line,) = (line for line in table.splitlines() if line.split()[:1] == ["native"])
    assert "no" in line.split()


def test_the_json_has_the_failure_its_explanation_and_the_ways_out(
    fragmented: str, tmp_path: Path
) -> None:
    result = replayed(tmp_path, 3, "--trace", fragmented, "--device-memory", "100MiB")
    keys = {
        *("trace", "device", "simulated", "peak_allocated_bytes", "peak_active_bytes"),
        *("peak_reserved_bytes", "out_of_memory", "explanation", "way_out"),
    }
    assert keys <= result.keys()
    assert (result["trace"], result["simulated"]) == (fragmented, True)
    assert (result["device_memory_bytes"], result["other_memory_bytes"]) == (100 * MIB, 0)
    failure = result["out_of_memory"]
    assert {"node_id", "operator", "requested_bytes"} <= failure.keys()
    assert failure["largest_free_bytes"] == 58 * MIB
    explanation = result["explanation"]
    assert explanation["event"] == 3
    assert explanation["classes"] == [{"class": "not known", "bytes": 2 * MIB}]
    assert sum(group["bytes"] for group in explanation["live"]) == 2 * MIB
    reserved = explanation["reserved"]
    assert reserved.pop("free_blocks") == 1
    assert reserved.pop("largest_free_bytes") == reserved.pop("largest_hole_bytes") == 58 * MIB
    assert sum(reserved.values()) == failure["reserved_bytes"] == 60 * MIB
    assert explanation["timeline"]["reserved_bytes"][:4] == [60 * MIB] * 4
    options = {option["allocator"]: option for option in result["way_out"]}
    assert set(options) == set(ALLOCATORS)
    assert {"fits", "room_bytes", "how", "capacity_bytes", "mode"} <= options["native"].keys()
    assert options["native"]["room_bytes"] == -20 * MIB
    assert options["expandable"]["fits"]
    fits = [option["fits"] for option in result["way_out"]]
    assert fits == sorted(fits, reverse=True)


def test_a_device_on_which_nothing_is_served_has_a_timeline_of_nothing(
    fragmented: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", fragmented, "--device-memory", "40MiB"]) == 3
    assert "the top is 0 B." in capsys.readouterr().out


def test_what_fits_says_so_and_ends_with_0(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = replayed(tmp_path, 0, "--trace", fragmented, "--device-memory", "120MiB")
    assert "none: every request is served" in capsys.readouterr().out
    assert (result["out_of_memory"], result["explanation"], result["way_out"]) == (None, None, [])
    assert (result["peak_allocated_bytes"], result["peak_reserved_bytes"]) == (62 * MIB, 120 * MIB)


def test_another_allocator_serves_it(fragmented: str, tmp_path: Path) -> None:
    words = ["--trace", fragmented, "--device-memory", "100MiB", "--allocator", "expandable"]
    assert replayed(tmp_path, 0, *words)["allocator"] == "expandable"


def test_memory_of_others_is_taken_from_the_device(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trace", fragmented, "--device-memory", "130MiB", "--other-memory", "30MiB"]
    result = replayed(tmp_path, 3, *words)
    assert "30.0 MiB of the device are not PyTorch's" in capsys.readouterr().out
    assert (result["device_memory_bytes"], result["other_memory_bytes"]) == (130 * MIB, 30 * MIB)
    assert result["out_of_memory"]["capacity_bytes"] == 100 * MIB
    assert result["way_out"][0]["capacity_bytes"] == 100 * MIB


def test_a_share_of_the_device_counts_for_all_that_is_shown(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 200 MiB half, which 120 MiB do not fit."""
    page, file = tmp_path / "page.html", tmp_path / "rows.json"
    half = ["--trace", fragmented, "--device-memory", "200MiB", "--memory-fraction", "0.5"]
    others = ["--allocator", "native", "--json", str(file), "--force"]

    result = replayed(tmp_path, 3, *half, "--page", str(page))
    assert "200 MiB, of which PyTorch may hold 50.0 %" in capsys.readouterr().out
    assert (result["device_memory_bytes"], result["memory_fraction"]) == (200 * MIB, 0.5)
    shown = json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])
    native = shown["maps"][0]
    assert (native["allocator"], [each["row"] for each in native["failures"]]) == ("native", [3])
    assert main(["compare", *half, *others]) == 3
    assert "200 MiB, of which PyTorch may hold 50.0 %" in capsys.readouterr().out
    (row,) = json.loads(file.read_text())["results"]
    assert (row["memory_fraction"], row["out_of_memory"]["event"]) == (0.5, 3)
    assert main(["timeline", *half, *others, "--output", str(page)]) == 0
    (row,) = json.loads(file.read_text())["results"]
    assert (row["memory_fraction"], row["failures"][0]["event"]) == (0.5, 3)


@pytest.mark.parametrize(
    ("recorded", "left", "said"),
    [
        (
            "foo:bar, expandable_segments:True,roundup_power2_divisions:[256:1,>:3]",
            "native:expandable_segments:True",
            ["setting foo:bar is left out: No", "divisions:[256:1,>:3] is left out: The allocator"],
        ),
        ("max_split_size_mb:5", "native", ["expected at least 20 (MiB, a packed segment), got 5"]),
        ("nonsense", "native", ["The recorded setting nonsense is left out: "]),
        ("foo,max_split_size_mb:64", "native:max_split_size_mb:64", ["setting foo is left out: "]),
        ("max_split_size_mb:64", "native:max_split_size_mb:64", []),
    ],
)
def test_recorded_settings_that_there_are_none_such_of_are_left_out(
    fragmented: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recorded: str,
    left: str,
    said: list[str],
) -> None:
    content = json.loads(Path(fragmented).read_text())
    content["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": recorded}
    Path(fragmented).write_text(json.dumps(content))

    assert replayed(tmp_path, 0, "--trace", fragmented)["allocator"] == left
    error = capsys.readouterr().err
    assert all(each in error for each in said)
    assert error.count("left out") == len(said)


def test_settings_that_only_new_versions_have_are_those_of_one(
    fragmented: str, tmp_path: Path
) -> None:
    content = json.loads(Path(fragmented).read_text())
    content["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "throw_on_cudamalloc_oom:True"}
    Path(fragmented).write_text(json.dumps(content))

    result = replayed(tmp_path, 0, "--trace", fragmented)
    assert result["torch_version"] == "2.12"
    assert result["allocator"] == "native:throw_on_cudamalloc_oom:True"


def test_a_fraction_in_the_settings_is_taken_once(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job of 120 MiB had half of the device, and failed to get more."""
    content = json.loads(Path(fragmented).read_text())
    content["device_traces"][0].append(entry("oom", 400 * MIB, 59 * MIB))
    settings = "per_process_memory_fraction:0.5"
    content["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": settings}
    Path(fragmented).write_text(json.dumps(content))

    result = replayed(tmp_path, 3, "--trace", fragmented)
    assert "240 MiB, of which PyTorch may hold 50.0 % (what the file" in capsys.readouterr().out
    assert (result["device_memory_bytes"], result["peak_reserved_bytes"]) == (240 * MIB, 120 * MIB)
    failures = result["explanation"]["failures"]
    assert failures == {"new_events": [], "reproduced_events": [4], "absent_events": []}
    capacities = {option["capacity_bytes"] for option in result["way_out"]}
    assert capacities == {120 * MIB}  # whatever the allocator
    assert replayed(tmp_path, 3, "--trace", fragmented, "--allocator", "direct")


def test_a_share_of_what_the_file_proves_is_refused(
    oom: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", oom, "--memory-fraction", "0.5"]) == 2
    assert "--memory-fraction needs --device-memory: " in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("fit",)])
def test_versions_of_which_settings_are_others_are_imitated_by_their_own(
    oom: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Before 2.10 max_split_size_mb is more than 20, and there is no large_segment_size_mb."""
    content = json.loads(Path(oom).read_text())
    content["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:40"}
    Path(oom).write_text(json.dumps(content))

    assert main([*words, "--trace", oom, "--torch-version", "2.9"]) == (0 if words else 3)
    out, error = capsys.readouterr()
    assert "native:max_split_size_mb:21" in out
    assert "The recorded setting large_segment_size_mb:40 is left out: " in error


def test_the_version_that_is_imitated_may_be_told(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trace", fragmented, "--device-memory", "1GiB", "--torch-version"]
    assert replayed(tmp_path, 0, *words, "2.9")["torch_version"] == "2.9"
    assert main([*words, "1.13"]) == 2
    assert "1.13" in capsys.readouterr().err


def test_without_a_figure_it_is_said_that_the_device_is_all_pytorchs(
    fragmented: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", fragmented, "--device-memory", "200MiB"]) == 0
    out = capsys.readouterr().out
    assert "all of the device is PyTorch's" in out
    assert "--other-memory" in out


def test_others_cannot_have_all_of_the_device(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trace", fragmented, "--device-memory", "40MiB", "--other-memory", "40MiB"]
    code = main([*words, "--json", str(tmp_path / "result.json")])
    if code != 2:  # nothing is PyTorch's, so nothing can be served
        result = json.loads((tmp_path / "result.json").read_text())["results"][0]
        assert code == 3
        assert result["peak_reserved_bytes"] == 0
        assert result["device_memory_bytes"] == 40 * MIB


def test_the_peak_is_explained_where_nothing_fails(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = replayed(tmp_path, 0, "--trace", fragmented, "--explain", "peak")
    out = capsys.readouterr().out
    assert "The peak: 120 MiB reserved, of which 62.0 MiB are allocated." in out
    assert "What would fit" not in out
    explanation = result["explanation"]
    assert (explanation["event"], explanation["failure"], explanation["causes"]) == (3, None, [])
    assert explanation["classes"] == [{"class": "not known", "bytes": 62 * MIB}]


def test_the_peak_of_what_fails_is_out_of_memory_all_the_same(
    fragmented: str, tmp_path: Path
) -> None:
    words = ["--trace", fragmented, "--device-memory", "100MiB", "--explain", "peak"]
    result = replayed(tmp_path, 3, *words)
    assert result["out_of_memory"]["requested_bytes"] == 60 * MIB


def test_a_device_that_nobody_named_is_not_said_to_be_the_user_s(
    fragmented: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", fragmented]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^Device +simulated, 80\.0 GiB", out, re.MULTILINE)
    assert "80.0 GiB (--device-memory)" not in out


def test_a_state_without_a_history_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = [segment(A, block(20 * MIB), block(40 * MIB, "inactive"))]
    assert main(["--trace", written(tmp_path / "state.json", state, []), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "The recorded state: 60.0 MiB reserved, of which 20.0 MiB are allocated." in out
    assert "What was live: 20.0 MiB" in out


@pytest.mark.parametrize("allocator", [[], ["--allocator", "expandable"]])
def test_a_state_that_the_device_cannot_hold_is_out_of_memory(
    tmp_path: Path, allocator: list[str]
) -> None:
    state = [segment(A, block(20 * MIB), block(40 * MIB, "inactive"))]
    path = written(tmp_path / "state.json", state, [])
    assert main(["--trace", path, "--device-memory", "10MiB", *allocator]) == 3


def test_a_snapshot_of_nothing_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", written(tmp_path / "empty.json", [], [])]) == 1
    assert "without segments and events" in capsys.readouterr().err


def test_an_existing_file_is_overwritten_only_by_force(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    file.write_text("precious")
    assert main(["--trace", fragmented, "--json", str(file)]) == 2
    assert file.read_text() == "precious"
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"et_replay: error: {file} exists; --force overwrites it.\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--allocator", "jemalloc"], "jemalloc"),
        (["--allocator", "native:max_splt_size_mb:3"], "max_splt_size_mb"),
        (["--device-memory", "0"], "Expected a size above 0"),
        (["--other-memory", "much"], "Expected a size such as 24GiB"),
        (["--explain", "leak"], "invalid choice: 'leak'"),
    ],
)
@pytest.mark.parametrize("kind", ["history", "trace"])
def test_wrong_usage_is_one_sentence_and_2(
    fragmented: str,
    kind: str,
    words: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = fragmented if kind == "history" else CONVNET
    assert main(["--trace", path, "--device", "meta", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert complaint in err


def test_a_flag_for_operators_is_said_to_mean_nothing(
    fragmented: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--trace", fragmented, "--run-kernels"])

    assert capsys.readouterr().err == (
        "warning: --run-kernels is for execution traces, and means nothing for a memory history.\n"
    )


def test_a_plan_for_a_history_that_no_planned_allocator_serves_is_refused(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`et_replay compare` refuses the same with 2; nothing that was asked for is left out."""
    assert main(["--trace", fragmented, "--plan", str(tmp_path / "none.json")]) == 2
    assert "--plan" in capsys.readouterr().err


def test_a_plan_for_a_history_is_read(
    fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "none.json")
    assert main(["--trace", fragmented, "--allocator", "stalloc", "--plan", plan]) == 1
    assert f"Cannot read {plan}" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--dump", "--profile", "--execution-trace", "--update-config"])
def test_files_about_operators_are_refused_for_a_history(
    flag: str, fragmented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / ("made.py" if flag == "--dump" else "made.json")
    assert main(["--trace", fragmented, flag, str(made)]) == 2
    assert capsys.readouterr().err == (
        f"et_replay: error: {flag} is for execution traces: a memory history has no operators.\n"
    )
    assert not made.exists()
