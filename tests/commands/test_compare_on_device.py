"""`et_replay compare --device`: what it refuses before, or for want of, a replay on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_replay.commands import compare_on_device, main
from et_replay.commands.compare_on_device import ReplayJob, ReplayOptions
from et_replay.formats import open_trace
from et_replay.program import Mode, allocation_events, build_program
from et_replay.program.requests import RecordedRequests
from et_replay.replay import ReplayResult
from et_replay.replay.result import Coverage, MemoryPeaks

MIB = 2**20


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the sentence with which these words of `compare` are refused."""
    assert main(["compare", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("et_replay: error: ")
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    return err.removeprefix("et_replay: error: ").removesuffix("\n")


@pytest.mark.parametrize("device", ["cpu", "meta", "auto"])
def test_only_a_gpu_is_measured(
    trace_file: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "--trace", str(trace_file), "--device", device) == (
        f"--device {device} cannot be measured: expected cuda or cuda:N; without --device"
        " everything is simulated."
    )


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--page", "x.html"),
        ("--snapshot", "x.pickle"),
        ("--plan", "x.json"),
        ("--torch-version", "2.11"),
        ("--memory-fraction", "0.5"),
        ("--device-index", "0"),
    ],
)
def test_what_is_for_simulations_alone_is_refused(
    trace_file: Path, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--trace", str(trace_file), "--device", "cuda", flag, value)
    assert refused(capsys, *words) == (
        f"{flag} and --device contradict each other: it is for simulations."
    )


def test_stdin_cannot_be_read_again(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--trace", str(trace_file), "--trace", "-", "--device", "cuda:1")
    assert refused(capsys, *words) == (
        "--device reads a trace more than once, which stdin cannot be: use a file."
    )


def test_no_input_is_overwritten(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = trace_file.with_name("other.json")
    other.write_bytes(trace_file.read_bytes())
    words = ("--trace", str(trace_file), "--trace", str(other), "--device", "cuda", "--force")
    assert refused(capsys, *words, "--json", str(other)) == (
        f"--json {other} is the input, which is never overwritten."
    )
    assert other.read_bytes() == trace_file.read_bytes()


def test_a_machine_without_a_gpu_says_so(
    trace_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = tmp_path / "rows.json"
    words = ("--trace", str(trace_file), "--device", "cuda", "--json", str(result))
    assert "--device cuda needs a CUDA device and there is none" in refused(capsys, *words)
    assert not result.exists()


@pytest.mark.parametrize(
    ("allocator", "complaint"),
    [
        ("jemalloc", "jemalloc"),
        ("torch:max_splt_size_mb:3", "max_splt_size_mb"),
        ("ideal", "The allocator ideal exists in simulation only: leave out --device."),
    ],
)
def test_an_allocator_that_cannot_serve_is_refused_before_any_does(
    trace_file: Path, allocator: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--trace", str(trace_file), "--device", "cuda", "--allocator", allocator)
    assert complaint in refused(capsys, *words)


def measured(job: ReplayJob) -> ReplayResult:
    """Stand for a replay on a GPU, which asks for the storages of the trace and nothing else."""
    program = build_program(open_trace(job.trace))
    requests = RecordedRequests(allocation_events(program, job.options.mode), {})
    assert job.options.allocator is not None
    return ReplayResult(
        trace=job.trace,
        device="cuda:0",
        simulated=False,
        mode=job.options.mode.value,
        window="ProfilerStep#3",
        node_ids=(9, 12),
        device_memory=100 * MIB,
        library_workspace=0,
        coverage=Coverage(executed=3, substituted=0, skipped=0, reasons=[]),
        iteration_times=[2_000_000] * job.options.iterations,
        memory=MemoryPeaks(4 * MIB, 4 * MIB, 22 * MIB),
        allocator=job.options.allocator,
        requests=requests if job.options.record_requests else None,
        torch_version="2.11.0+cu128",
    )


@pytest.mark.parametrize(
    ("mode", "lifetimes", "allocated"),
    [
        ("pre", Mode.PRE_ALLOCATE, 4 * MIB),
        ("lazy", Mode.LAZY_ALLOCATE, 3 * MIB),
        ("stalloc", Mode.LAZY_ALLOCATE, 3 * MIB),
    ],
)
def test_what_was_measured_stands_beside_what_is_simulated(
    trace_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    lifetimes: Mode,
    allocated: int,
) -> None:
    jobs: list[ReplayOptions] = []

    def replay(job: ReplayJob) -> ReplayResult:
        jobs.append(job.options)
        return measured(job)

    monkeypatch.setattr(compare_on_device, "replay_in_own_process", replay)
    monkeypatch.setattr(compare_on_device, "choose_target", lambda *_: None)
    words = ["compare", "--device", "cuda", "--trace", str(trace_file), "--json", "-"]
    words += ["--tensor-allocation-mode", mode, "--allocator", "torch", "--allocator", "expandable"]

    assert main(words) == 0

    rows = json.loads(capsys.readouterr().out)["results"]
    assert [(job.allocator, job.mode, job.operator_times) for job in jobs] == [
        ("native", lifetimes, False),
        ("torch", lifetimes, False),
        ("expandable", lifetimes, False),
    ]
    assert [row["allocator"] for row in rows] == ["torch", "expandable"]
    for row in rows:
        assert row["measured"]["peak_reserved_bytes"] == 22 * MIB
        assert row["measured"]["iteration_time_ns"] == [2_000_000] * 10
        assert row["peak_allocated_bytes"] == allocated
        assert row["beyond_the_trace"] == []
