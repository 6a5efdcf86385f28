"""Failures that a history itself has: found again, counted, and the one that ended the job."""

from __future__ import annotations

from pathlib import Path

from made_histories import explained, history
from snapshot_builder import block, entry, pickled, segment, snapshot

from et_replay.events import Action
from et_replay.explain.explanation import Failures
from et_replay.formats import open_recording

MIB = 2**20
ALLOC, FREE, OOM = Action.ALLOC, Action.FREE, Action.OUT_OF_MEMORY


def test_a_recorded_failure_fails_again_and_is_explained() -> None:
    explanation = explained(
        history((ALLOC, 0, 60 * MIB), (OOM, -1, 50 * MIB), (FREE, 0, 60 * MIB)), 100 * MIB
    )
    assert explanation.failures == Failures(reproduced=(1,))
    assert explanation.failure is not None
    assert explanation.failure.requested == 50 * MIB
    assert (explanation.failure.allocated, explanation.row) == (60 * MIB, 1)


def test_of_several_recorded_failures_the_one_that_ended_the_job_is_explained() -> None:
    made = history(
        (ALLOC, 0, 60 * MIB),
        (OOM, -1, 50 * MIB),
        (ALLOC, 1, 30 * MIB),
        (OOM, -1, 20 * MIB),
    )
    explanation = explained(made, 100 * MIB)
    assert explanation.failures == Failures(reproduced=(1, 3))
    assert explanation.row == 3
    assert explanation.statistics.allocated_bytes == 90 * MIB


def test_a_recorded_failure_that_is_served_here_is_named() -> None:
    made = history((ALLOC, 0, 60 * MIB), (OOM, -1, 30 * MIB), (OOM, -1, 50 * MIB))
    explanation = explained(made, 100 * MIB)
    assert explanation.failures == Failures(reproduced=(2,), absent=(1,))


def test_on_a_smaller_device_the_job_ends_at_the_first_request_that_does_not_fit() -> None:
    """Its own failure had been caught; what was served then, and is not here, ends the job."""
    made = history(
        (ALLOC, 0, 30 * MIB),
        (ALLOC, 1, 30 * MIB),
        (FREE, 1, 30 * MIB),
        (OOM, -1, 90 * MIB),
    )
    assert explained(made, 50 * MIB).row == 1


def test_a_snapshot_taken_at_an_oom_reproduces_it(tmp_path: Path) -> None:
    address = 64 * MIB
    file = tmp_path / "oom.pickle"
    file.write_bytes(
        pickled(
            snapshot(
                [segment(address, block(60 * MIB))],
                [
                    entry("segment_alloc", address, 60 * MIB),
                    entry("alloc", address, 60 * MIB),
                    entry("oom", 40 * MIB, 50 * MIB),
                ],
            )
        )
    )
    made = open_recording(file)
    assert made.device_memory == 100 * MIB
    explanation = explained(made, 100 * MIB)
    assert explanation.failures == Failures(reproduced=(1,))
    failure = explanation.failure
    assert failure is not None
    assert (failure.requested, failure.allocated, failure.reserved) == (
        50 * MIB,
        60 * MIB,
        60 * MIB,
    )
