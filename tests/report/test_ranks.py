"""The summary of a job's ranks, word for word, and its JSON keys."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from typing import Any

from et_replay.errors import OutOfMemoryError
from et_replay.program.operation_classes import OperationClass
from et_replay.replay.result import (
    ClassTime,
    CollectiveTimes,
    Coverage,
    MemoryPeaks,
    OperatorTime,
    Outcome,
    Reason,
    ReplayResult,
)
from et_replay.report.ranks import ranks_object, ranks_text

MS = 1_000_000
GIB = 2**30


def result(rank: int, time: int, reserved: int, *collectives: CollectiveTimes) -> ReplayResult:
    return ReplayResult(
        trace=f"job/rank-{rank}.et.json",
        device="cpu",
        simulated=True,
        mode="lazy",
        window="ProfilerStep#4",
        node_ids=(10, 90),
        device_memory=80 * GIB,
        library_workspace=0,
        coverage=Coverage(
            executed=98,
            substituted=2,
            skipped=0,
            reasons=(Reason("aten::item", 2, Outcome.SUBSTITUTED, "depends on data"),),
        ),
        iteration_times=(time,),
        memory=MemoryPeaks(allocated=reserved // 2, active=reserved // 2, reserved=reserved),
        allocator="native",
        replay_mode="full",
        collective_times=collectives,
        timed_iterations=(20 * MS,),
    )


def all_reduce(begin: int, time: int) -> CollectiveTimes:
    return CollectiveTimes("all_reduce", (0, 1), "float", 4 * 10**6, (time,), (begin,))


def gather(begin: int, time: int) -> CollectiveTimes:
    kind, dtype = "all_gather_into_tensor", "c10::BFloat16"
    return CollectiveTimes(kind, (0, 1), dtype, 512, (time,), (begin,))


RESULTS = {
    0: result(0, 24 * MS, 2 * GIB, all_reduce(0, 5 * MS), gather(9 * MS, 1000)),
    1: result(1, 25 * MS, 4 * GIB, all_reduce(3 * MS, 2 * MS), gather(9 * MS, 1000)),
}


def text(block: str) -> str:
    return textwrap.dedent(block).strip("\n")


def test_the_summary_names_the_slowest_rank_and_what_was_waited_for() -> None:
    upper, _, lower = ranks_text("job", RESULTS).partition("\nCollectives, per call\n")
    assert (
        upper
        == text("""
        Trace        job, window ProfilerStep#4
        Ranks        2, on cpu
        Replay mode  full
        Mode         lazy
        Time         25.0 ms per iteration in rank 1, the slowest; 24.0 ms in rank 0
        Peak memory  simulated; most in rank 1: 2.00 GiB allocated, 4.00 GiB reserved

        Ranks
          rank     time  waiting  allocated  reserved  executed  substituted  skipped
             1  25.0 ms     0 ns   2.00 GiB  4.00 GiB        98            2        0
             0  24.0 ms  3.00 ms   1.00 GiB  2.00 GiB        98            2        0
    """)
        + "\n"
    )
    assert [re.sub(r" {2,}", "|", line.strip()) for line in lower.splitlines()[:3]] == [
        "collective|group|type|bytes|calls|time|shortest|longest|algorithm|bus|share|waiting"
        "|for rank",
        "all_reduce|(0, 1)|float|3.81 MiB|1|2.00 ms|2.00 ms|2.00 ms|2.00 GB/s|2.00 GB/s|17.5 %"
        "|3.00 ms|1",
        "all_gather_into_tensor|(0, 1)|c10::BFloat16|512 B|1|1.00 us|1.00 us|1.00 us|512 MB/s"
        "|256 MB/s|0.0 %|0 ns|-",
    ]
    assert lower.partition("0 ns         -\n")[2] == (
        "  Calls and waiting are those of one iteration, waiting that of all ranks; the time of a"
        " call is\n  without it. Bandwidths are as NCCL's tests define them.\n"
        "\nOperations not executed as recorded\n"
        "  operator    count  ranks  outcome      reason\n"
        "  aten::item      4      2  substituted  depends on data"
    )


def test_waiting_that_is_part_of_the_time_of_messages_is_no_figure_of_its_own() -> None:
    send = CollectiveTimes("send", (0, 1), "float", 64, (30, 50), (0, 100), 1)
    receive = CollectiveTimes("recv", (0, 1), "float", 64, (40, 20), (0, 100), 1)
    results = {0: result(0, 24 * MS, GIB, send), 1: result(1, 25 * MS, GIB, receive)}
    lines = ranks_text("job", results).splitlines()

    start = lines.index("Ranks") + 2
    assert [line.split()[:4] for line in lines[start : start + 2]] == [
        ["1", "25.0", "ms", "-"],
        ["0", "24.0", "ms", "-"],
    ]
    rows = [line.split() for line in lines if line.startswith(("  send ", "  recv "))]
    assert [(row[0], row[-2:]) for row in rows] == [("send", ["-", "-"]), ("recv", ["-", "-"])]
    said = "  Where waiting is -, as of messages, it cannot be told apart: the time includes it."
    assert said in lines
    assert said not in ranks_text("job", RESULTS)
    found: Any = ranks_object("job", results)
    assert [row["waiting_ns"] for row in found["collectives"]] == [None, None]
    assert [rank["waiting_ns"] for rank in found["ranks"]] == [None, None]


def test_of_one_rank_there_is_no_slowest() -> None:
    lines = ranks_text("job", {0: RESULTS[0]}).splitlines()
    assert "Time         24.0 ms per iteration in rank 0" in lines


def test_a_rank_out_of_memory_is_named() -> None:
    failure = OutOfMemoryError(
        "Out of memory: a request of 1.00 GiB does not fit.",
        requested=GIB,
        capacity=4 * GIB,
        allocated=3 * GIB,
        reserved=3 * GIB,
    )
    failed = dataclasses.replace(RESULTS[1], iteration_times=(), out_of_memory=failure)
    lines = ranks_text("job", {0: RESULTS[0], 1: failed}).splitlines()
    assert "Out of memory  rank 1: a request of 1.00 GiB does not fit." in lines
    assert lines[lines.index("Rank 1") + 1].startswith("Trace         job/rank-1.et.json")


def test_settings_of_the_job_are_told_once_or_by_rank() -> None:
    high = {"float32_matmul_precision": "high"}
    both = {rank: dataclasses.replace(result(rank, 1, 1), torch_settings=high) for rank in (0, 1)}
    assert "As in the job  float32_matmul_precision high\n" in ranks_text("job", both)
    one = {**both, 0: result(0, 1, 1)}
    line = "As in the job  rank 0: none; rank 1: float32_matmul_precision high\n"
    assert line in ranks_text("job", one)


def test_ranks_that_were_ended_are_counted() -> None:
    found: Any = ranks_object("job", {1: RESULTS[1]}, 4)
    assert (found["world_size"], [rank["rank"] for rank in found["ranks"]]) == (4, [1])
    lines = ranks_text("job", {1: RESULTS[1]}, size=4).splitlines()
    assert "Ranks        1 of 4, the others were ended, on cpu" in lines


def test_of_ranks_that_reserve_as_much_the_one_with_more_allocated_needs_most() -> None:
    memory = MemoryPeaks(allocated=3 * GIB, active=3 * GIB, reserved=4 * GIB)
    results = {2: dataclasses.replace(RESULTS[1], memory=memory), 1: RESULTS[1], 0: RESULTS[0]}
    assert "most in rank 2: 3.00 GiB allocated, 4.00 GiB reserved" in ranks_text("job", results)


def test_only_the_slowest_of_many_ranks_have_a_row_unless_all_are_wanted() -> None:
    results = {rank: result(rank, (rank + 1) * MS, GIB) for rank in range(20)}
    lines = ranks_text("job", results).splitlines()
    start = lines.index("The slowest ranks")
    assert [line.split()[0] for line in lines[start + 2 : start + 18]] == [
        str(rank) for rank in range(19, 3, -1)
    ]
    assert "Ranks" in ranks_text("job", results, verbose=True).splitlines()


def test_the_json_form_has_the_collectives_and_the_ranks() -> None:
    found: Any = ranks_object("job", RESULTS)
    assert (found["trace"], found["world_size"], found["slowest_rank"]) == ("job", 2, 1)
    first = found["collectives"][0]
    assert first == {
        "kind": "all_reduce",
        "group": [0, 1],
        "dtype": "float",
        "bytes": 4000000,
        "ranks": [0, 1],
        "calls": 1,
        "median_time_ns": 2 * MS,
        "shortest_time_ns": 2 * MS,
        "longest_time_ns": 2 * MS,
        "algorithm_bandwidth_bytes_per_s": 2e9,
        "bus_bandwidth_bytes_per_s": 2e9,
        "share_of_iteration": 0.175,
        "waiting_ns": 3 * MS,
        "waiting_by_rank": [{"rank": 0, "waiting_ns": 3 * MS}, {"rank": 1, "waiting_ns": 0}],
        "slowest_rank": 1,
    }
    ranks = [(rank["rank"], rank["waiting_ns"], rank["trace"]) for rank in found["ranks"]]
    assert ranks == [(0, 3 * MS, "job/rank-0.et.json"), (1, 0, "job/rank-1.et.json")]


def with_times(rank: int, *times: int) -> ReplayResult:
    """Return the result of a rank whose products take `times`."""
    products = OperatorTime("aten::mm", 3, times)
    return dataclasses.replace(
        RESULTS[rank], operation_times=(ClassTime(OperationClass.MATRIX_PRODUCT, (products,)),)
    )


def test_the_times_of_operations_are_those_of_the_slowest_rank() -> None:
    """Rank 1 takes 25 ms, rank 0 takes 24 ms."""
    both = {0: with_times(0, 9 * MS), 1: with_times(1, 5 * MS, 7 * MS, 6 * MS)}
    _, title, found = ranks_text("job", both).partition("\nTime by class of operation in rank ")
    assert title
    assert found.startswith(
        text("""
        1, median of 3 further iterations
             time    share  operations  class
          6.00 ms  100.0 %           3  matrix product
        """)
    )
    assert "aten::mm" not in found
    row = "6.00 ms  100.0 %           3                  aten::mm"
    assert row in ranks_text("job", both, verbose=True)


def test_what_the_configuration_leaves_out_is_told_on_request() -> None:
    left_out = Reason("fbgemm::lookup", 4, Outcome.SKIPPED, "as configured", configured=True)
    coverage = Coverage(executed=96, substituted=0, skipped=4, reasons=(left_out,))
    both = {0: dataclasses.replace(RESULTS[0], coverage=coverage), 1: RESULTS[1]}
    assert "fbgemm::lookup" not in ranks_text("job", both)
    assert "fbgemm::lookup" in ranks_text("job", both, verbose=True)
