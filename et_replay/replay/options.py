"""How to replay: the choices of a user, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from et_replay.errors import UsageError
from et_replay.planning import Plan
from et_replay.program.schedule import Mode
from et_replay.replay.configuration import Skip
from et_replay.replay_modes import COMM, COMP
from et_replay.serving import DEFAULT_DEVICE_MEMORY, left_for_torch
from et_replay.simulation import NEWEST_VERSION, PLANNED, allocator_name
from et_replay.torch_settings import TorchSettings


@dataclass(frozen=True)
class ReplayOptions:
    """How to replay; the names are those of the command line's flags.

    `device_memory` is the capacity in bytes: of a simulated device `gpu_memory` unless given, of
    which None is 80 GiB, of a real one at most what it has. A simulated device has the allocator of
    torch `imitated_version`. `device_memory_threshold` is a share of it. `plan` is what
    STALLOC_PLANNED serves, by default one made from the trace, or on a real device from an
    iteration that runs ahead. `allocator` is one as `Simulator` takes it, by default `native` for a
    simulated device, PyTorch's own for a real one, and `stalloc` in that mode. `other_memory` are
    bytes of a simulated device that are not PyTorch's. With `record_requests` an allocator of ours
    on a real device tells what it was asked for in the first two iterations. `run_kernels` allows
    code from beside the trace to run. With `operator_times` the time of each operation is taken, in
    `timed_iterations` further ones; None means on cuda only. `imports` are modules that register
    operators, imported before anything is prepared; operations that one of `skips` matches are not
    executed, but their results appear. `profile` and `execution_trace` are files to write about
    one further iteration each; a note says why one is missing. `replay_mode` says what of a job
    is replayed: its computation, its communication, or both. `torch_settings` are those
    that were in force in the job. Raises UsageError where one option cannot go with another.
    """

    mode: Mode = Mode.PRE_ALLOCATE
    device: str = "auto"
    device_memory: int | None = None
    gpu_memory: int | None = None
    imitated_version: str = NEWEST_VERSION
    device_memory_threshold: float = 1.0
    warmup: int = 1
    iterations: int = 3
    on_unsupported: str = "substitute"
    seed: int = 0
    library_workspace: int = 0
    plan: Plan | None = None
    allocator: str | None = None
    other_memory: int = 0
    record_requests: bool = False
    run_kernels: bool = False
    operator_times: bool | None = None
    timed_iterations: int = 3
    imports: tuple[str, ...] = ()
    skips: tuple[Skip, ...] = ()
    profile: Path | None = None
    execution_trace: Path | None = None
    replay_mode: str = COMP
    torch_settings: TorchSettings = field(default_factory=dict)

    def further_iterations(self, device_type: str) -> int:
        """Return how many iterations take operations' times; none on meta, which computes none."""
        wanted = device_type == "cuda" if self.operator_times is None else self.operator_times
        return self.timed_iterations if wanted and device_type != "meta" else 0

    @property
    def collective_iterations(self) -> int:
        """How many further iterations take collectives' times; mode comm has no other point."""
        return max(self.timed_iterations, self.iterations if self.replay_mode == COMM else 0)

    @property
    def allocator_that_serves(self) -> str:
        """The allocator of a simulated device, or in place of PyTorch's own on a real one."""
        default = PLANNED if self.mode is Mode.STALLOC_PLANNED else "native"
        return self.allocator or default

    @property
    def simulated_memory(self) -> int:
        """The bytes of a simulated device."""
        return self.device_memory or self.gpu_memory or DEFAULT_DEVICE_MEMORY

    @property
    def planned(self) -> bool:
        """Whether that allocator serves a plan."""
        return allocator_name(self.allocator_that_serves) == PLANNED

    def __post_init__(self) -> None:
        if self.operator_times and self.device == "meta":
            raise UsageError(
                "--operator-times needs operators that compute, which those on meta do not:"
                " use --device cuda or --device cpu."
            )
        if self.execution_trace is not None and self.device == "meta":
            raise UsageError(
                "--execution-trace tells storages apart by their addresses, which tensors on meta"
                " do not have: use --device cuda or --device cpu."
            )
        left_for_torch(self.simulated_memory, self.other_memory)
        if self.mode is Mode.STALLOC_PLANNED and not self.planned:
            raise UsageError(
                f"--allocator {self.allocator} and --tensor-allocation-mode {self.mode.value}"
                " contradict each other: stalloc is an allocator of its own."
            )
        if self.plan is not None and not self.planned:
            raise UsageError(
                "--plan needs --tensor-allocation-mode stalloc or --allocator stalloc."
            )
        threshold = self.device_memory_threshold
        if not 0 < threshold <= 1:
            raise UsageError(
                f"Expected a --device-memory-threshold above 0 and up to 1, got {threshold}."
            )
        if threshold < 1 and self.mode is not Mode.LAZY_ALLOCATE:
            raise UsageError(
                "--device-memory-threshold below 1 needs --tensor-allocation-mode lazy:"
                f" {self.mode.value} frees nothing early."
            )
