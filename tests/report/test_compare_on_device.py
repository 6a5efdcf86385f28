"""What is measured beside what is simulated: the text word for word, and the JSON keys."""

from __future__ import annotations

import dataclasses
import textwrap

import numpy as np

from et_replay.allocator_figures import MemoryStatistics
from et_replay.comparison import Comparison
from et_replay.errors import OutOfMemoryError
from et_replay.events import Action, AllocationEvents, MemoryHistory
from et_replay.origins import MemoryClass, Origin
from et_replay.program.requests import BEYOND
from et_replay.replay.result import Coverage, MemoryPeaks, ReplayResult
from et_replay.report.compare import InputReport
from et_replay.report.compare_on_device import DeviceReport, device_objects, device_text

KIB, MIB, GIB = 2**10, 2**20, 2**30
LIBRARY, TEMPORARY = MemoryClass.LIBRARY, MemoryClass.TEMPORARY

SERVED = ReplayResult(
    trace="step.json",
    device="cuda:0",
    simulated=False,
    mode="pre",
    window="ProfilerStep#3",
    node_ids=(10, 90),
    device_memory=80 * GIB,
    library_workspace=0,
    coverage=Coverage(executed=8, substituted=1, skipped=1),
    iteration_times=(20_000_000, 30_000_000, 22_000_000),
    memory=MemoryPeaks(allocated=3 * GIB, active=3 * GIB + MIB, reserved=4 * GIB),
    allocator="expandable_segments:True",
    torch_version="2.11.0",
)
FAILED = dataclasses.replace(
    SERVED,
    iteration_times=(),
    memory=MemoryPeaks(allocated=512 * MIB, active=600 * MIB, reserved=GIB),
    allocator="native",
    out_of_memory=OutOfMemoryError(
        "A request of 2.00 GiB does not fit.",
        requested=2 * GIB,
        capacity=2 * GIB,
        allocated=512 * MIB,
        reserved=GIB,
        largest_free=256 * MIB,
        node_id=77,
        operator="aten::mm",
    ),
)
SIMULATED = Comparison(
    allocator="torch",
    torch_version="2.11",
    statistics=MemoryStatistics(
        **dict.fromkeys((each.name for each in dataclasses.fields(MemoryStatistics)), 0)
        | {"peak_allocated_bytes": 7 * GIB // 2, "peak_reserved_bytes": 5 * GIB}
    ),
    reserved_by_iteration=(5 * GIB,),
    out_of_memory=None,
    failed_iteration=None,
    undefined="",
    duration=1000,
)
ORIGINS = {
    0: Origin("aten::linear", ("model",), MemoryClass.WEIGHT),
    5: Origin("aten::relu", BEYOND, TEMPORARY),
    6: Origin("aten::mm", BEYOND, LIBRARY),
    7: Origin("aten::sum", BEYOND, TEMPORARY),
    8: Origin("aten::sum", BEYOND, TEMPORARY),
    9: Origin("aten::mm", BEYOND, TEMPORARY),
}


def history(*rows: tuple[str, int], begin: int) -> MemoryHistory:
    """Make what was seen: `+storage` or `-storage` with a size, steady from row `begin` on."""
    zeros = np.zeros(len(rows), dtype=np.int64)
    events = AllocationEvents(
        action=np.array([Action.ALLOC if w[0] == "+" else Action.FREE for w, _ in rows], np.int8),
        storage=np.array([int(word[1:]) for word, _ in rows]),
        size=np.array([size for _, size in rows]),
        stream=zeros,
        node_id=zeros,
        steps=np.array([begin, len(rows)]),
    )
    return MemoryHistory("step.json", "execution trace", events, zeros, origins=ORIGINS)


def report(seen: MemoryHistory | None) -> DeviceReport:
    compared = InputReport(
        input="step.json",
        kind="execution trace",
        events=11,
        device_memory=80 * GIB,
        iterations=3,
        addresses=None,
        rows=[SIMULATED],
        notes=["One node was repaired."],
        history=seen,
    )
    return DeviceReport(compared, {"torch": SERVED, "native": FAILED})


SEEN = history(
    *(("+0", 40 * MIB), ("+5", 9 * GIB), ("-5", 9 * GIB), ("+6", 32 * MIB)),
    *(("+7", 512 * KIB), ("-7", 512 * KIB), ("+8", MIB), ("-8", MIB), ("+9", 1000), ("-9", 1000)),
    begin=4,
)


def test_the_text_has_both_figures_side_by_side() -> None:
    """The failure has no simulated row; what relu took, it took before the steady iteration."""
    expected = textwrap.dedent("""\
        Input             step.json, execution trace
        Window            ProfilerStep#3
        Device            cuda:0, torch 2.11.0, 80.0 GiB; each allocator in a process of its own
        Mode              pre
        Operations        10 in the window: 8 executed, 1 substituted, 1 skipped
        Time              median of 3 iterations
        In force          torch: expandable_segments:True
        Beyond the trace  aten::mm keeps 1 of up to 32.0 MiB
                          aten::sum takes and frees 2 of up to 1.00 MiB
                          aten::mm takes and frees 1 of up to 1000 B

          allocator  reserved  simulated  allocated  simulated  fragmentation  iteration  out of memory
          torch      4.00 GiB   5.00 GiB   3.00 GiB   3.50 GiB         25.0 %    22.0 ms  no
          native     1.00 GiB          -    512 MiB          -         50.0 %          -  node 77""")  # noqa: E501
    assert device_text(report(SEEN)) == expected


def test_a_row_has_what_was_measured_and_what_was_simulated() -> None:
    first, _ = device_objects(report(SEEN))
    assert (first["input"], first["allocator"]) == ("step.json", "torch")
    assert first["tensor_allocation_mode"] == "pre"
    assert first["peak_reserved_bytes"] == 5_368_709_120
    assert first["peak_allocated_bytes"] == 3_758_096_384
    assert first["notes"] == ["One node was repaired."]
    assert first["measured"] == {
        "device": "cuda:0",
        "configuration": "expandable_segments:True",
        "torch": "2.11.0",
        "device_memory_bytes": 85_899_345_920,
        "iteration_time_ns": [20_000_000, 30_000_000, 22_000_000],
        "peak_allocated_bytes": 3_221_225_472,
        "peak_active_bytes": 3_222_274_048,
        "peak_reserved_bytes": 4_294_967_296,
        "fragmentation": 0.25,
        "out_of_memory": None,
    }


def test_a_row_without_a_simulation_has_what_was_measured_only() -> None:
    _, second = device_objects(report(SEEN))
    assert sorted(second) == [
        "allocator", "beyond_the_trace", "input", "measured", "tensor_allocation_mode",
    ]  # fmt: skip
    measured = second["measured"]
    assert isinstance(measured, dict)
    assert measured["iteration_time_ns"] == []
    assert measured["out_of_memory"] == {
        "message": "A request of 2.00 GiB does not fit.",
        "node_id": 77,
        "operator": "aten::mm",
        "requested_bytes": 2_147_483_648,
        "capacity_bytes": 2_147_483_648,
        "allocated_bytes": 536_870_912,
        "reserved_bytes": 1_073_741_824,
        "largest_free_bytes": 268_435_456,
    }


def test_what_the_trace_does_not_show_is_listed_by_operator_the_largest_first() -> None:
    for row in device_objects(report(SEEN)):
        assert row["beyond_the_trace"] == [
            {"operator": "aten::mm", "kept": True, "requests": 1, "largest_bytes": 33_554_432},
            {"operator": "aten::sum", "kept": False, "requests": 2, "largest_bytes": 1_048_576},
            {"operator": "aten::mm", "kept": False, "requests": 1, "largest_bytes": 1000},
        ]


def lines_of_many(count: int) -> list[str]:
    """Return what is said of `count` operators that take 1 KiB, 2 KiB, ... and keep it."""
    seen = history(*((f"+{n}", n * KIB) for n in range(1, count + 1)), begin=0)
    makers = {n: Origin(f"aten::op{n}", BEYOND, LIBRARY) for n in range(1, count + 1)}
    text = device_text(report(dataclasses.replace(seen, origins=makers)))
    said = text.partition("Beyond the trace")[2].partition("\n\n")[0]
    return [line.strip() for line in said.splitlines()]


def test_the_six_largest_are_named_and_the_others_counted() -> None:
    assert lines_of_many(8)[::6] == ["aten::op8 keeps 1 of up to 8.00 KiB", "and 2 smaller ones"]
    assert lines_of_many(7)[5:] == ["aten::op2 keeps 1 of up to 2.00 KiB", "and 1 smaller one"]
    assert lines_of_many(6)[5:] == ["aten::op1 keeps 1 of up to 1.00 KiB"]


def test_without_a_recording_nothing_is_said_of_it() -> None:
    assert "Beyond the trace  nothing was asked for\n" in device_text(report(None))
    assert [row["beyond_the_trace"] for row in device_objects(report(None))] == [[], []]
