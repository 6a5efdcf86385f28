"""An allocator of ours in, the plan for it and what that had no room for out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from et_replay.errors import OutOfMemoryError
from et_replay.planning import Plan
from et_replay.program.allocations import allocation_events
from et_replay.program.program import Program
from et_replay.program.requests import RecordedRequests
from et_replay.program.schedule import Step
from et_replay.replay.device_memory import check_plan_given
from et_replay.replay.iteration import Iteration
from et_replay.replay.options import ReplayOptions
from et_replay.replay.recorded_requests import RequestRecorder
from et_replay.replay.result import Elsewhere
from et_replay.replay.served_memory import FallbackFinder, ServedMemory
from et_replay.replay.workspaces import default_library_workspace
from et_replay.simulation import PlanFigures

_OUT_OF_MEMORY = (
    "Memory ran out in the iterations that run ahead of a plan, served by the caching allocator;"
    " --allocator stalloc:expandable_segments:True needs less there."
)


class Rehearsal:
    """Iterations around the measured ones, on a device that an allocator of ours serves.

    Those ahead are recorded by `recorder`, None where nothing is to be; then `requests` are all
    that was asked for and `plan` is what is served. Those behind tell what a plan left to others:
    `elsewhere` are the requests of one iteration, `figures` those of the plan before it.
    """

    def __init__(
        self,
        program: Program,
        options: ReplayOptions,
        steps: list[Step],
        iteration: Iteration,
        served: ServedMemory | None,
    ) -> None:
        self.requests: RecordedRequests | None = None
        self.plan: Plan | None = None
        self.figures: PlanFigures | None = None
        self.elsewhere: Sequence[Elsewhere] = ()
        self.notes: list[str] = []
        self._program = program
        self._options = options
        self._steps = steps
        self._iteration = iteration
        self._served = served
        wanted = options.record_requests or options.planned
        self.recorder = (
            RequestRecorder(program, served.index) if served is not None and wanted else None
        )

    def run(self) -> None:
        """Run two iterations that are recorded; after them a planned allocator serves a plan.

        A device is asked for more than a trace tells, such as scratch memory, and in the first
        iteration for other things than in those after it.
        """
        if self.recorder is None:
            return
        given = self._options.plan
        if given is not None:
            events = allocation_events(self._program, self._options.mode, self._steps)
            check_plan_given(given, events, self._options, self._program)
        planned = self._served if self._options.planned else None
        try:
            if planned is not None and default_library_workspace(self._program):
                planned.take_library_workspace()
            for first in (True, False):
                self._iteration.recorded(self.recorder, first)
        except OutOfMemoryError:
            self.notes.append(_OUT_OF_MEMORY)
            raise
        self.requests = self.recorder.finish()
        if planned is not None:
            plan = planned.adopt(self.requests, given)
            self.plan = given or replace(plan, source=self._program.trace.source)

    def find_fallbacks(self) -> None:
        """Run once more where a plan left requests to others, to say whose they were."""
        if self._served is None or self.plan is None:
            return
        figures = self._served.plan_figures()
        if figures is None or not figures.fallback.requests:
            return
        self.figures = figures  # without what follows
        names = [operation.name for operation in self._iteration.operations]
        finder = FallbackFinder(self._served, names)
        self._iteration.stepped(finder.step)
        self.elsewhere = finder.finish()
