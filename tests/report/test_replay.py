"""The summary of a replay, word for word, and its JSON keys."""

from __future__ import annotations

import dataclasses
import textwrap

from et_replay.errors import OutOfMemoryError
from et_replay.program.operation_classes import OperationClass
from et_replay.replay.result import (
    ClassTime,
    Coverage,
    Flushes,
    LiveStorage,
    MemoryPeaks,
    OperatorTime,
    Outcome,
    Reason,
    ReplayResult,
)
from et_replay.report.replay import replay_object, replay_text

RESULT = ReplayResult(
    trace="step.json.gz",
    device="cpu",
    simulated=True,
    mode="lazy",
    window="ProfilerStep#4",
    node_ids=(10, 90),
    device_memory=80 * 2**30,
    library_workspace=0,
    coverage=Coverage(
        executed=98,
        substituted=2,
        skipped=0,
        reasons=(
            Reason("triton_poi_fused_0", 2, Outcome.SUBSTITUTED, "generated kernel (triton)"),
        ),
    ),
    iteration_times=(22_400_000, 21_000_000, 25_000_000),
    memory=MemoryPeaks(allocated=3 * 2**30, active=3 * 2**30, reserved=4 * 2**30),
    flushes=Flushes(count=2, freed=2**30, recreated=2**29),
    allocator="native",
)

FAILURE = dataclasses.replace(
    RESULT,
    iteration_times=(),
    flushes=Flushes(),
    out_of_memory=OutOfMemoryError(
        "A request of 1.00 GiB does not fit.",
        requested=2**30,
        capacity=4 * 2**30,
        allocated=3 * 2**30,
        reserved=3 * 2**30 + 2**29,
        largest_free=2**29,
        node_id=77,
        operator="aten::mm",
    ),
    live=(
        LiveStorage(2**30, "input", "", 12),
        LiveStorage(2**30, "input", "", 14),
        LiveStorage(2**30, "produced", "aten::relu", 60),
    ),
)


def text(block: str) -> str:
    return textwrap.dedent(block).strip("\n")


def test_the_summary_says_what_ran_where_in_what_time_and_memory() -> None:
    assert replay_text(RESULT) == text("""
        Trace         step.json.gz, window ProfilerStep#4 (nodes 10 to 90)
        Device        cpu, memory simulated, 80.0 GiB
        Allocator     native
        Mode          lazy
        Operations    100 in the window: 98 executed, 2 substituted, 0 skipped
        Time          22.4 ms per iteration, median of 3 (21.0 ms to 25.0 ms)
                      Creating the inputs, and their values, is part of it in this mode.
                      Gaps between operators (host work, data loading) are not in a trace, nor in this.
        Peak memory   3.00 GiB allocated, 3.00 GiB active, 4.00 GiB reserved; fragmentation 25.0 %
        Other memory  none: all of the device is PyTorch's; a CUDA context and libraries take some 0.5 GiB more (see --other-memory)
        Workspaces    none added; a trace does not record those of libraries such as cuBLAS (see --library-workspace)
        Flushes       2 per iteration: 1.00 GiB freed, 512 MiB created again

        Operations not executed as recorded
          operator            count  outcome      reason
          triton_poi_fused_0      2  substituted  generated kernel (triton)
        """)  # noqa: E501 - the lines of the summary are what they are


def test_an_out_of_memory_names_the_operation_the_request_and_what_is_live() -> None:
    expected = text("""
        A request of 1.00 GiB does not fit.
          It failed at node 77, aten::mm; the largest free block was 512 MiB. Live storages were
             bytes  count  kind      producer
          2.00 GiB      2  input     -
          1.00 GiB      1  produced  aten::relu
        """)
    assert f"\n\n{expected}\n" in replay_text(FAILURE)
    assert "100 in the window: 98 executed, 2 substituted, 0 skipped" in replay_text(FAILURE)
    assert "none: no measured iteration came to its end" in replay_text(FAILURE)


def test_on_meta_the_time_is_said_to_be_that_of_shapes() -> None:
    meta = dataclasses.replace(RESULT, device="meta")
    assert "the time of shape computation only" in replay_text(meta)


def test_workspaces_are_said_to_be_added_or_among_what_was_measured() -> None:
    added = dataclasses.replace(RESULT, library_workspace=2**26)
    assert "64.0 MiB added for libraries" in replay_text(added)
    measured = dataclasses.replace(RESULT, device="cuda:0", simulated=False)
    assert "among the measured bytes" in replay_text(measured)


def class_time(kind: OperationClass, name: str, *times: int) -> ClassTime:
    return ClassTime(kind, (OperatorTime(name, 2, times),))


TIMED = dataclasses.replace(
    RESULT,
    operation_times=(
        ClassTime(
            OperationClass.MATRIX_PRODUCT,
            (
                OperatorTime("aten::mm", 4, (6_000_000, 5_000_000, 9_000_000)),
                OperatorTime("aten::bmm", 1, (1_000_000, 2_000_000, 1_000_000)),
            ),
        ),
        class_time(OperationClass.OPTIMIZER, "aten::_foreach_add_", 1_000_000, 800_000, 1_200_000),
    ),
)


def test_the_times_of_operations_are_a_table_by_class() -> None:
    expected = text("""
        Time by class of operation, median of 3 further iterations
             time   share  operations  class
          7.00 ms  87.5 %           5  matrix product
          1.00 ms  12.5 %           2  optimizer
          From operation to operation, so with what the host does between them.
        """)
    assert f"\n\n{expected}\n" in replay_text(TIMED)


def test_verbose_times_are_those_of_each_operator_too() -> None:
    expected = text("""
        Time by class of operation, median of 3 further iterations
             time   share  operations  class           operator
          7.00 ms  87.5 %           5  matrix product
          6.00 ms  75.0 %           4                  aten::mm
          1.00 ms  12.5 %           1                  aten::bmm
          1.00 ms  12.5 %           2  optimizer
          1.00 ms  12.5 %           2                  aten::_foreach_add_
        """)
    assert f"\n{expected}\n" in replay_text(TIMED, verbose=True)


def test_on_cuda_times_are_said_to_contain_what_the_device_waits_for() -> None:
    measured = dataclasses.replace(TIMED, device="cuda:0", simulated=False)
    assert "where it idles, waiting for the host to launch an operation" in replay_text(measured)


def test_of_many_classes_the_last_are_added_up() -> None:
    kinds = list(OperationClass)[:10]
    many = dataclasses.replace(
        RESULT,
        operation_times=tuple(
            class_time(kind, "aten::x", 1_000 * (10 - n)) for n, kind in enumerate(kinds)
        ),
    )
    lines = replay_text(many).partition("Time by class")[2].splitlines()
    assert len(lines[2:10]) == 8
    assert lines[9].split() == ["6.00", "us", "10.9", "%", "6", "3", "others"]
    assert lines[10].startswith("  From operation to operation")


def test_the_object_has_the_times_of_each_class_and_operator() -> None:
    assert replay_object(TIMED)["operation_times"] == [
        {
            "class": "matrix product",
            "operations": 5,
            "median_ns": 7_000_000,
            "min_ns": 7_000_000,
            "max_ns": 10_000_000,
            "operators": [
                {
                    "name": "aten::mm",
                    "operations": 4,
                    "median_ns": 6_000_000,
                    "min_ns": 5_000_000,
                    "max_ns": 9_000_000,
                },
                {
                    "name": "aten::bmm",
                    "operations": 1,
                    "median_ns": 1_000_000,
                    "min_ns": 1_000_000,
                    "max_ns": 2_000_000,
                },
            ],
        },
        {
            "class": "optimizer",
            "operations": 2,
            "median_ns": 1_000_000,
            "min_ns": 800_000,
            "max_ns": 1_200_000,
            "operators": [
                {
                    "name": "aten::_foreach_add_",
                    "operations": 2,
                    "median_ns": 1_000_000,
                    "min_ns": 800_000,
                    "max_ns": 1_200_000,
                }
            ],
        },
    ]


def test_the_object_has_the_documented_keys() -> None:
    assert replay_object(RESULT) == {
        "trace": "step.json.gz",
        "device": "cpu",
        "simulated": True,
        "device_memory_bytes": 85_899_345_920,
        "other_memory_bytes": 0,
        "allocator": "native",
        "tensor_allocation_mode": "lazy",
        "window": "ProfilerStep#4",
        "window_node_ids": [10, 90],
        "operations": {
            "total": 100,
            "executed": 98,
            "substituted": 2,
            "skipped": 0,
            "not_reached": 0,
        },
        "reasons": [
            {
                "name": "triton_poi_fused_0",
                "count": 2,
                "outcome": "substituted",
                "reason": "generated kernel (triton)",
                "configured": False,
            }
        ],
        "collectives": {"count": 0, "time": None},
        "iteration_time_ns": [22_400_000, 21_000_000, 25_000_000],
        "operation_times": [],
        "peak_allocated_bytes": 3_221_225_472,
        "peak_active_bytes": 3_221_225_472,
        "peak_reserved_bytes": 4_294_967_296,
        "fragmentation": 0.25,
        "library_workspace_bytes": 0,
        "flushes": {"count": 2, "freed_bytes": 2**30, "recreated_bytes": 2**29},
        "plan": None,
        "requests_elsewhere": [],
        "out_of_memory": None,
        "explanation": None,
        "torch_settings": {},
        "way_out": [],
        "notes": [],
    }


def test_the_object_of_a_failure_has_its_figures() -> None:
    assert replay_object(FAILURE)["out_of_memory"] == {
        "message": "A request of 1.00 GiB does not fit.",
        "node_id": 77,
        "operator": "aten::mm",
        "requested_bytes": 2**30,
        "capacity_bytes": 2**32,
        "allocated_bytes": 3_221_225_472,
        "reserved_bytes": 3_758_096_384,
        "largest_free_bytes": 2**29,
        "live": [
            {"size_bytes": 2**30, "kind": "input", "producer": "", "first_node_id": 12},
            {"size_bytes": 2**30, "kind": "input", "producer": "", "first_node_id": 14},
            {
                "size_bytes": 2**30,
                "kind": "produced",
                "producer": "aten::relu",
                "first_node_id": 60,
            },
        ],
    }
