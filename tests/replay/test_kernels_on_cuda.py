"""On a real GPU: a compiled training step replays whole, its kernels computing what torch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from replay.tiny_traces import held, reasons, run
from torch import nn
from torch._inductor import config
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

from et_replay.execution_trace import ExecutionTrace
from et_replay.formats import open_trace
from et_replay.program import Mode, build_program

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile anew and in this process, so that the sources are there to be saved."""
    pytest.importorskip("triton")
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setattr(config, "compile_threads", 1)
    torch.compiler.reset()


def recorded(folder: Path, step: Callable[[], object]) -> ExecutionTrace:
    """Record the third of three steps, with the sources of its kernels beside the trace."""
    observer = ExecutionTraceObserver().register_callback(str(folder / "trace.json"))
    observer.set_extra_resource_collection(True)
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
    ):
        with record_function("ProfilerStep#3"):
            step()
        torch.cuda.synchronize()
    return open_trace(folder / "trace.json")


def training_step() -> Callable[[], object]:
    """Return a compiled step of an embedding, a normalisation, two products and a loss."""
    torch.manual_seed(0)
    layers = (nn.Embedding(64, 32), nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU())
    model = nn.Sequential(*layers, nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(64, (8, 16), device="cuda")

    @torch.compile
    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(tokens))
        optimizer.step()

    return step


@pytest.mark.parametrize("mode", [Mode.PRE_ALLOCATE, Mode.LAZY_ALLOCATE])
def test_every_operation_of_a_compiled_step_executes(tmp_path: Path, mode: Mode) -> None:
    program = build_program(recorded(tmp_path, training_step()))
    assert sum(operation.node.is_kernel for operation in program.operations) >= 4

    result = run(program, mode, "cuda", warmup=1, iterations=2, run_kernels=True)
    forbidden = run(program, mode, "cuda")

    assert [each for each in reasons(result) if each[2] != "executed"] == []
    assert result.coverage.executed == result.coverage.total == len(program.operations)
    assert forbidden.coverage.substituted > 0
    kernels = [reason for name, _, _, reason in reasons(forbidden) if name.startswith("triton_")]
    folder = tmp_path / "trace_resources"
    expected = f"a generated triton kernel; --run-kernels runs its code from {folder}"
    assert set(kernels) == {expected}


def test_a_pointwise_kernel_computes_what_torch_computes(tmp_path: Path) -> None:
    left, right = torch.rand(1000, device="cuda"), torch.rand(1000, device="cuda")
    fused = torch.compile(lambda left, right: torch.sin(left) * right + 1)
    program = build_program(recorded(tmp_path, lambda: fused(left, right)))
    (operation,) = (each for each in program.operations if each.node.is_kernel)

    replayed = held(program, Mode.PRE_ALLOCATE, "cuda", run_kernels=True)

    (call,) = replayed._iteration.operations[program.operations.index(operation)].calls
    slots = replayed._store.slots
    for slot in call.inputs:
        replayed._store.create(slot)
    given_left, given_right, result = (slots[slot] for slot in operation.call.inputs)
    call.run(slots)
    torch.testing.assert_close(result, torch.sin(given_left) * given_right + 1)
