"""The sample snapshot against what torch reported, and what its other settings did on the GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from et_replay.explain import Case, Explanation, explain, find_way_out
from et_replay.formats import open_recording
from et_replay.origins import MemoryClass

MIB = 2**20
TRACES = Path(__file__).resolve().parents[2] / "traces"
HISTORY = open_recording(TRACES / "transformer_oom.pickle.gz")
TRUTH = json.loads((TRACES / "transformer_oom.truth.json").read_text())


@pytest.fixture(scope="module")
def failed() -> Explanation:
    explanation = explain(HISTORY, "native", 1500 * MIB, torch_version="2.11")
    assert explanation is not None
    return explanation


def test_the_recorded_request_fails_again_and_no_other(failed: Explanation) -> None:
    assert HISTORY.device_memory == TRUTH["limit_bytes"] == 1500 * MIB
    assert failed.failures.reproduced == (3109,)
    assert (failed.failures.new, failed.failures.absent) == ((), ())


def test_the_figures_are_those_of_the_message(failed: Explanation) -> None:
    message = TRUTH["outcomes"]["default"]["out_of_memory"]
    failure = failed.failure
    assert failure is not None
    assert re.search(r"Tried to allocate (\S+ \S+)\.", message)[1] == "132.00 MiB"
    assert failure.requested == 132 * MIB
    found = re.search(r"(\S+) GiB is allocated by PyTorch, and (\S+) MiB is reserved", message)
    assert f"{failure.allocated / 2**30:.2f}" == found[1]
    assert f"{(failure.reserved - failure.allocated) / MIB:.2f}" == found[2]


def test_what_fits_is_what_ran_to_the_end_on_the_gpu() -> None:
    options = find_way_out([Case("", HISTORY)], 1500 * MIB, "2.11")
    simulated = {
        option.fit.allocator: option.fits
        for option in options
        if option.fit.allocator not in ("ideal", "stalloc")
    }
    measured = {
        _allocator(setting): outcome["out_of_memory"] == ""
        for setting, outcome in TRUTH["outcomes"].items()
    }
    assert simulated == measured
    assert [name for name, fits in measured.items() if fits] == ["expandable"]
    expandable = next(option for option in options if option.fit.allocator == "expandable")
    assert expandable.retries == TRUTH["outcomes"]["expandable_segments:True"]["retries"] == 1


def test_frames_tell_what_filled_the_device(failed: Explanation) -> None:
    # Parameters in float32, counted by hand; AdamW keeps two moments of each.
    weights = 92_385_280
    assert failed.classes[MemoryClass.WEIGHT] == pytest.approx(weights, rel=0.02)
    assert failed.classes[MemoryClass.OPTIMIZER_STATE] == pytest.approx(2 * weights, rel=0.02)
    largest = failed.groups[0].origin
    assert largest.memory_class is MemoryClass.ACTIVATION
    assert largest.maker == "traces/transformer.py:33 forward"


def _allocator(setting: str) -> str:
    if setting == "expandable_segments:True":
        return "expandable"
    return "native" if setting == "default" else f"native:{setting}"
