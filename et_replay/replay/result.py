"""What a replay found: coverage with reasons, times, memory, flushes, out of memory."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from et_replay.errors import OutOfMemoryError
from et_replay.events import AllocationEvents, MemoryHistory
from et_replay.planning import Plan
from et_replay.program.operation_classes import OperationClass
from et_replay.program.requests import RecordedRequests
from et_replay.replay_modes import COMP
from et_replay.simulation import NEWEST_VERSION, MemoryStatistics, PlanFigures

if TYPE_CHECKING:
    from et_replay.torch_settings import TorchSettings


class Outcome(Enum):
    """What became of an operation; the order is from best to worst."""

    EXECUTED = "executed"
    SUBSTITUTED = "substituted"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Reason:
    """Why `count` operations called `name` were not executed as recorded.

    An `outcome` of EXECUTED means: executed, with the deviation that `reason` states. A
    `configured` one is what the user's configuration says.
    """

    name: str
    count: int
    outcome: Outcome
    reason: str
    configured: bool = False


@dataclass(frozen=True)
class Unexecuted:
    """Operations that a replay did not execute for a reason of its own; `all` called `operator`."""

    operator: str
    reason: str
    node_ids: tuple[int, ...]
    all: bool


@dataclass(frozen=True)
class Coverage:
    """Top-level operations of the window, each counted once: `total` is the sum of the others.

    `not_reached` are those behind a failure for want of memory in the first iteration.
    `collectives` were not executed, as in replay mode comp; waits for them do not count.
    """

    executed: int
    substituted: int
    skipped: int
    reasons: Sequence[Reason] = ()
    not_reached: int = 0
    collectives: int = 0
    unexecuted: Sequence[Unexecuted] = ()

    @property
    def total(self) -> int:
        return self.executed + self.substituted + self.skipped + self.not_reached


@dataclass(frozen=True)
class MemoryPeaks:
    """Peaks over the measured iterations, in bytes, with torch.cuda.memory_stats()'s meanings."""

    allocated: int
    active: int
    reserved: int

    @classmethod
    def of(cls, statistics: MemoryStatistics) -> MemoryPeaks:
        """Pick them out of what one of our allocators counts."""
        return cls(
            statistics.peak_allocated_bytes,
            statistics.peak_active_bytes,
            statistics.peak_reserved_bytes,
        )

    @property
    def fragmentation(self) -> float:
        """1 - peak allocated / peak reserved, 0 where nothing was reserved."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


@dataclass(frozen=True)
class Flushes:
    """What `--device-memory-threshold` did per iteration: firings, bytes freed and recreated."""

    count: int = 0
    freed: int = 0
    recreated: int = 0


@dataclass(frozen=True)
class Elsewhere:
    """Requests of an operator that a plan had no room for, in one iteration."""

    operator: str
    requests: int
    size: int


@dataclass(frozen=True)
class LiveStorage:
    """A storage that was live at the failure."""

    size: int
    kind: str
    producer: str
    first_node_id: int


@dataclass(frozen=True)
class OperatorTime:
    """How long all `operations` of an iteration that call `name` took, in each iteration, in ns."""

    name: str
    operations: int
    times: Sequence[int]

    @property
    def median(self) -> int:
        return round(statistics.median(self.times))


@dataclass(frozen=True)
class ClassTime:
    """How long all operations of a class took, in each iteration, in ns.

    The operator that took longest comes first.
    """

    operation_class: OperationClass
    operators: Sequence[OperatorTime]

    @property
    def operations(self) -> int:
        return sum(operator.operations for operator in self.operators)

    @property
    def times(self) -> list[int]:
        return [sum(times) for times in zip(*(o.times for o in self.operators), strict=True)]

    @property
    def median(self) -> int:
        return round(statistics.median(self.times))


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """How long the collectives of one kind, group and size took in one rank, one entry a call.

    `group` are the global ranks, `bytes` the size as NCCL's tests count it: all that a rank has or
    gets, whichever is more. `begins_ns` are when the rank came to each call, from a moment on that
    is the same in all ranks, as far as the end of a barrier is: the difference between ranks is
    what one waits for another. `iterations` are those in which they were taken; `at_once` says
    whether the devices of all ranks began each of them at once, to the microsecond.
    """

    kind: str
    group: tuple[int, ...]
    dtype: str
    bytes: int
    times_ns: tuple[int, ...]
    begins_ns: tuple[int, ...]
    iterations: int = 1
    at_once: bool = False


@dataclass(frozen=True)
class ReplayResult:
    """One replay of one trace window on one device.

    `node_ids` are the first and the last of the window. `plan` is what STALLOC_PLANNED served, with
    the requests of all iterations in `plan_figures`; `elsewhere` are those of one iteration that
    the caching allocator served, and `requests` all that were recorded. `allocator` is that of a
    simulated device, as in torch `imitated_version`, or what served a real one; `events` is what a
    simulated one was asked for, up to the end of the last iteration. `at_failure` is the memory of
    a real one when a request did not fit, where that is known, and this request its one event.
    `operation_times` are those of further iterations, the longest first; empty where these were not
    wanted, or did not come to their end. `collective_times` are those of `timed_iterations` further
    ones (their own times), empty where no collective was executed. `torch_settings` are those
    that were set as in the job, and were not so before. `notes` says what else a reader must know.
    """

    trace: str
    device: str
    simulated: bool
    mode: str
    window: str
    node_ids: tuple[int, int]
    device_memory: int
    library_workspace: int
    coverage: Coverage
    iteration_times: Sequence[int]
    memory: MemoryPeaks
    flushes: Flushes = field(default_factory=Flushes)
    out_of_memory: OutOfMemoryError | None = None
    live: Sequence[LiveStorage] = ()
    plan: Plan | None = None
    plan_figures: PlanFigures | None = None
    allocator: str = ""
    other_memory: int = 0
    events: AllocationEvents | None = None
    elsewhere: Sequence[Elsewhere] = ()
    requests: RecordedRequests | None = None
    torch_version: str = ""
    imitated_version: str = NEWEST_VERSION
    at_failure: MemoryHistory | None = None
    operation_times: Sequence[ClassTime] = ()
    replay_mode: str = COMP
    collective_times: Sequence[CollectiveTimes] = ()
    timed_iterations: Sequence[int] = ()
    torch_settings: TorchSettings = field(default_factory=dict)
    notes: Sequence[str] = ()
