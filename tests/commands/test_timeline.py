"""`et_replay timeline`, and the pages of compare and replay: files, forms and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_replay.commands import main
from et_replay.formats import open_recording

TRACES = Path(__file__).resolve().parents[2] / "traces"
OOM = str(TRACES / "transformer_oom.pickle.gz")
CONVNET = str(TRACES / "convnet_cuda.json.gz")


def test_a_page_has_the_allocators_as_tabs_and_its_figures_are_those_of_the_json(
    tmp_path: Path,
) -> None:
    output, file = tmp_path / "oom.html", tmp_path / "rows.json"
    words = ["timeline", "--trace", OOM, "--output", str(output), "--json", str(file)]
    assert main(words) == 0
    text = output.read_text(encoding="utf-8")
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    rows = json.loads(file.read_text())["results"]
    assert [row["allocator"] for row in rows] == ["native", "expandable", "stalloc"]
    for tab, row in zip(data["maps"], rows, strict=True):
        assert tab["allocator"] == row["allocator"]
        assert tab["peak_allocated_bytes"] == row["peak_allocated_bytes"]
        assert tab["peak_reserved_bytes"] == row["peak_reserved_bytes"]
    assert rows[0]["peak_reserved_bytes"] == 1500 * 2**20
    assert [failure["event"] for failure in rows[0]["failures"]] == [3109]


def test_a_page_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    assert main(["timeline", "--trace", CONVNET, "--output", str(output)]) == 0
    text = output.read_text(encoding="utf-8")
    for reference in ("http://", "https://", "src=", "@import", "url("):
        assert reference not in text


def test_page_and_json_are_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(tmp_path / "one.html")
    words = ["--output", one, "--json", one, "--force"]
    assert main(["timeline", "--trace", CONVNET, *words]) == 2
    assert f"--output and --json both name {one}, expected two files." in capsys.readouterr().err
    assert not Path(one).exists()


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_picture_without_what_draws_it_is_refused_before_the_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    output = str(tmp_path / name)
    assert main(["timeline", "--trace", CONVNET, "--output", output]) == 2
    assert f"{output} needs matplotlib, which is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.png", b"\x89PNG"),
        ("a.svg", b"<?xml"),
        ("a.csv", b"event,node_id,action"),
        ("a.perfetto.json", b'{"displayTimeUnit"'),
        ("a.pickle", b"\x80\x04"),
    ],
)
def test_the_name_tells_the_form(tmp_path: Path, name: str, begins: bytes) -> None:
    if name.endswith((".png", ".svg")):
        pytest.importorskip("matplotlib")
    output = tmp_path / name
    assert main(["timeline", "--trace", CONVNET, "--output", str(output)]) == 0
    assert output.read_bytes().startswith(begins)


def test_a_snapshot_that_was_written_is_read_again(tmp_path: Path) -> None:
    output = tmp_path / "a.pickle"
    assert main(["timeline", "--trace", OOM, "--output", str(output)]) == 0
    assert len(open_recording(output).events) == len(open_recording(OOM).events)


def test_without_a_name_the_page_is_named_after_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", "--trace", CONVNET, "--allocator", "native"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["convnet_cuda.html"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "a.gif"], "expected a name that ends in .html, .png, .svg"),
        (["--output", "a.png", "--allocator", "native", "--allocator", "direct"], "one allocator"),
        (["--trace", OOM], "A timeline is of one input, got 2"),
        (["--allocator", "foo"], "foo"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", "--trace", CONVNET, *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    output = tmp_path / "a.csv"
    output.write_text("mine")
    assert main(["timeline", "--trace", CONVNET, "--output", str(output)]) == 2
    assert output.read_text() == "mine"
    assert main(["timeline", "--trace", CONVNET, "--output", str(output), "--force"]) == 0
    assert output.read_text() != "mine"


def test_compare_and_a_failed_replay_write_the_same_page(tmp_path: Path) -> None:
    compared, failed = tmp_path / "compared.html", tmp_path / "failed.html"
    words = ["--allocator", "native", "--allocator", "expandable", "--allocator", "stalloc"]
    assert main(["compare", "--trace", OOM, *words, "--page", str(compared)]) == 3
    assert main(["--trace", OOM, "--page", str(failed)]) == 3
    assert compared.read_bytes() == failed.read_bytes()


def test_a_replay_that_fails_writes_its_page(tmp_path: Path) -> None:
    output = tmp_path / "failed.html"
    words = ["--trace", CONVNET, "--device", "meta", "--device-memory", "300MiB"]
    assert main([*words, "--page", str(output)]) == 3
    assert '"failures":[{' in output.read_text(encoding="utf-8")


def test_verbose_draws_the_segments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", OOM, "--verbose"]) == 3
    out = capsys.readouterr().out
    assert "█ used, ▒ in part, · free" in out
    assert main(["--trace", OOM]) == 3
    assert "█ used" not in capsys.readouterr().out


def test_what_torch_refuses_leaves_no_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = {
        "streams": [0],
        "allocations": [[20971520, 0, 1], [512, 0, 1]],
        "events": [[0, "begin"], [1, "a", 0], [2, "f", 0], [3, "cache"], [4, "a", 1], [5, "end"]],
    }
    (tmp_path / "cap.json").write_text(json.dumps(streams))
    words = ["timeline", "--trace", str(tmp_path / "cap.json"), "--allocator", "native"]
    output = tmp_path / "c.html"
    assert main([*words, "--torch-version", "2.7", "--output", str(output)]) == 1
    assert capsys.readouterr().err == (
        "warning: native is left out: The cache cannot be emptied within a capture.\n"
        "et_replay: error: The cache cannot be emptied within a capture.\n"
    )
    assert not output.exists()
