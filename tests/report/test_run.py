"""What `et_replay run` says of each iteration."""

from __future__ import annotations

from typing import Any

from et_replay.report.run import RunReport, reports_object

MIB = 2**20


def told(number: int, unmatched: int = 0, reserved: int = 101 * MIB) -> dict[str, Any]:
    planned = {"requests": 200 - unmatched, "bytes": 50 * MIB}
    return {
        "iteration": number,
        "by": "optimizer step",
        "duration_ns": 2_000_000,
        "figures": {
            "peak_allocated_bytes": 100 * MIB,
            "peak_reserved_bytes": reserved,
            "planned": planned,
            "reused": {"requests": 0, "bytes": 0},
            "fallback": {"requests": unmatched, "bytes": unmatched * MIB},
            "unmatched": {"requests": unmatched, "bytes": unmatched * MIB},
            "expected": 200,
        },
    }


def test_an_iteration_is_one_line() -> None:
    report = RunReport(0, "stalloc", "x.plan.json")

    assert report.add(told(3)) == (
        "iteration 3: reserved 101 MiB, allocated 100 MiB, utilization 99.0 %, 2.00 ms;"
        " planned 200 (50.0 MiB), reused 0 (0 B), fallback 0 (0 B)"
    )


def test_that_iterations_differ_from_their_plan_is_said_once() -> None:
    report = RunReport(1, "stalloc", "x.plan.json")

    lines = [report.add(told(number, unmatched)) for number, unmatched in enumerate((2, 3, 9, 0))]

    assert [len(line.splitlines()) for line in lines] == [1, 2, 1, 1]
    assert lines[1].splitlines()[1] == (
        "rank 1, iteration 1 differs from its plan: 3 of 200 requests are not in it. They were"
        " served from idle space of the arena or by the caching allocator; every iteration is held"
        " against the plan anew, and this is said once."
    )


def test_without_a_plan_there_is_nothing_to_differ_from() -> None:
    report = RunReport(0, "native", None)

    assert len(report.add(told(1, 150)).splitlines()) == 1


def test_an_allocator_that_counts_no_requests_has_its_bytes_alone() -> None:
    message = told(1)
    message["figures"] = {"peak_allocated_bytes": 99 * MIB, "peak_reserved_bytes": 100 * MIB}

    text = RunReport(0, "torch", None).add(message)

    assert text == "iteration 1: reserved 100 MiB, allocated 99.0 MiB, utilization 99.0 %, 2.00 ms"


def test_the_summary_leaves_out_the_first_iteration() -> None:
    report = RunReport(0, "stalloc", "x.plan.json")
    for number, reserved in enumerate((900, 101, 125)):
        report.add(told(number, reserved=reserved * MIB))

    assert report.summary() == (
        "3 iterations under stalloc; after the first: reserved up to 125 MiB, allocated up to"
        " 100 MiB, utilization 80.0 %, 2.00 ms at the median"
    )


def test_the_document_has_the_ranks_in_order() -> None:
    reports = [RunReport(rank, "stalloc", "plans") for rank in (1, 0)]
    reports[0].add(told(0))

    found = reports_object(reports, 3)

    assert [(each["rank"], each["exit_code"]) for each in found] == [(0, 3), (1, 3)]
    (only,) = found[1]["iterations"]
    assert (only["iteration"], only["planned"]["requests"]) == (0, 200)
