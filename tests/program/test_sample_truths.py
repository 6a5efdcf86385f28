"""The bundled traces: PRE_ALLOCATE's peak is that of the job that was captured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from et_replay.events import Action
from et_replay.formats import open_trace
from et_replay.program import Mode, allocation_events, build_program

TRACES = Path(__file__).resolve().parents[2] / "traces"
NAMES = ["convnet_cuda", "moe_cuda", "transformer_cpu", "transformer_cuda"]


@pytest.mark.parametrize("name", NAMES)
def test_pre_requests_what_the_job_did(name: str) -> None:
    truth = json.loads((TRACES / f"{name}.truth.json").read_text())
    program = build_program(open_trace(TRACES / f"{name}.json.gz"))

    events = allocation_events(program, Mode.PRE_ALLOCATE)

    signed = np.where(events.action == Action.ALLOC, events.size, -events.size)
    known = truth.get("peak_requested_without_transients_bytes", truth["peak_allocated_bytes"])
    known -= truth.get("library_workspace_bytes", 0)
    assert abs(int(signed.cumsum().max()) - known) <= 8
