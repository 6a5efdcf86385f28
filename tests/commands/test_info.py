"""`et_replay info`: what a trace holds, on one screen and as JSON."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from trace_builder import LATEST, T, operator, write_trace

from et_replay.commands import main


def test_a_trace_is_described_on_one_screen(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--trace", str(trace_file)]) == 0
    out, err = capsys.readouterr()
    assert out.replace(str(trace_file), "step.json") == textwrap.dedent(f"""\
        Trace         step.json, schema {LATEST}, 6 nodes
        Windows       ProfilerStep#3 (3 operations)
        Described     window ProfilerStep#3, nodes 9 to 12: 3 operations
        Devices       cuda:0
        Storages      5 under 5 ids, 0 of which name several
                      input: 2, 2.00 MiB
                      produced: 3, 3.00 MiB
                      implicit: 0, 0 B
        Tensors       5 distinct views of storages
        Peak on cuda  pre: 4.00 MiB in aten::relu, node 11
                      lazy: 3.00 MiB in aten::mm, node 10
                      Sums of requests rounded up to 512 B; a replay tells active and reserved bytes too.

        Operators (2 names)
          operator    count
          aten::mm        2
          aten::relu      1
        """)  # noqa: E501 - the lines of the summary are what they are
    assert err == ""


def test_a_dash_writes_json_and_nothing_else_to_stdout(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--trace", str(trace_file), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "info"
    (result,) = document["results"]
    assert result["windows"] == [{"name": "ProfilerStep#3", "operations": 3}]
    assert result["storages"][0] == {"kind": "input", "count": 2, "size_bytes": 2 * 2**20}
    assert result["peaks"][0] == {
        "tensor_allocation_mode": "pre",
        "peak_allocated_bytes": 4 * 2**20,
        "node_id": 11,
        "operator": "aten::relu",
    }
    assert result["obstacles"] == []


def test_what_the_trace_alone_cannot_run_is_listed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensor = T(101, 101, 0, 256, 4)
    file = write_trace(
        tmp_path / "step.json",
        operator(10, "triton_poi_0", 2, [tensor], schema="", kernel_backend="triton"),
        operator(11, "record_param_comms", 2, [tensor]),
        operator(12, "fbgemm::dense_to_jagged", 2, [tensor]),
        operator(13, "aten::relu_", 2, [tensor], [tensor]),
    )
    assert main(["info", "--trace", str(file), "--json", "-"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert [(found["name"], found["reason"].split()[0]) for found in result["obstacles"]] == [
        ("triton_poi_0", "generated"),
        ("record_param_comms", "collective;"),
        ("fbgemm::dense_to_jagged", "from"),
    ]


def test_what_is_damaged_in_the_window_is_warned_of_and_in_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = T(101, 101, 0, 256, 4), T(102, 102, 0, -5, 4)
    file = write_trace(
        tmp_path / "step.json",
        operator(10, "aten::relu", 2, [whole], [broken]),
        operator(11, "aten::relu", 2, [whole], [whole], schema=""),
    )

    assert main(["info", "--trace", str(file), "--json", "-"]) == 0

    out, err = capsys.readouterr()
    said = [
        "1 value is damaged and counts as unknown (first: Tensor(float) in node 10, aten::relu).",
        "1 node has lost its schema and counts as no operator (first: node 11, aten::relu).",
    ]
    assert err.splitlines() == [f"warning: {note}" for note in said]
    assert json.loads(out)["results"][0]["notes"] == said


def test_a_trace_without_operators_is_described_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_trace(tmp_path / "empty.json")
    assert main(["info", "--trace", str(file)]) == 0
    assert "window all, nodes 1 to 2: 0 operations" in capsys.readouterr().out
