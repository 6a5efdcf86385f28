"""`et_replay run`: scripts under a plan, on a GPU; and what is refused before one starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_replay.commands import main

TRAIN = Path(__file__).parents[2] / "traces" / "train.py"

ACCUSTOMED = """
import json
import torch

def report(**what):
    print(json.dumps(what))

weight = torch.randn(256, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
report(allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved() > 0,
       segments=len(torch.cuda.memory_snapshot()) > 0,
       summary="Allocated" in torch.cuda.memory_summary())

try:
    torch.empty(2**50, device="cuda")
except torch.OutOfMemoryError as error:
    report(caught=str(error).startswith("CUDA out of memory. Tried to allocate 4194304.00 GiB"))

stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    static = torch.ones(256, 256, device="cuda")
    for _ in range(3):
        static @ weight
stream.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    product = torch.relu(static @ weight) @ weight
graph.replay()
report(graph=torch.equal(product, torch.relu(static @ weight) @ weight))

@torch.compile(mode="reduce-overhead")
def step(value):
    return torch.nn.functional.gelu(value @ weight).sum()

value = torch.ones(64, 256, device="cuda", requires_grad=True)
for _ in range(5):
    torch.compiler.cudagraph_mark_step_begin()
    value.grad = None
    loss = step(value)
    loss.backward()
    kept = loss.item()
expected = torch.nn.functional.gelu(value.detach() @ weight).sum()
report(compiled=abs(kept - expected.item()) <= 1e-4 * abs(expected.item()),
       gradient=bool(value.grad.isfinite().all()))

held = [torch.empty(2**24, device="cuda") for _ in range(8)]
del held
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
report(peak=torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated())

torch.backends.cudnn.benchmark = True
convolved = torch.nn.functional.conv2d(torch.ones(1, 3, 32, 32, device="cuda"),
                                       torch.ones(4, 3, 3, 3, device="cuda"))
report(convolved=convolved.sum().item())
"""
ANSWERED: list[dict[str, Any]] = [
    {"allocated": 256 * 256 * 4, "reserved": True, "segments": True, "summary": True},
    {"caught": True},
    {"graph": True},
    {"compiled": True, "gradient": True},
    {"peak": True},
    {"convolved": 4 * 30 * 30 * 27},
]


def results(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text())["results"]


def outcome(printed: str) -> dict[str, Any]:
    return json.loads(printed.splitlines()[-1])


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a plan from the capture of a dense job."""
    folder = tmp_path_factory.mktemp("dense")
    words = ["capture", "--output", str(folder / "captured"), "--", str(TRAIN), "dense"]
    assert main(words) == 0
    plan = folder / "plan.json"
    assert main(["plan", "--trace", str(folder / "captured"), "--output", str(plan)]) == 0
    return plan


@pytest.mark.cuda
def test_a_script_under_its_plan_computes_the_same_in_less_memory(
    plan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planned, plain = tmp_path / "planned.json", tmp_path / "plain.json"
    script = ["--", str(TRAIN), "dense", "--iterations", "8"]
    assert main(["run", "--plan", str(plan), "--json", str(planned), *script]) == 0
    ours = outcome(capfd.readouterr().out)
    assert main(["run", "--allocator", "torch", "--json", str(plain), *script]) == 0
    assert outcome(capfd.readouterr().out)["losses"] == ours["losses"]
    (served,), (alone,) = results(planned), results(plain)
    assert [each["iteration"] for each in served["iterations"]] == list(range(8))
    for under_plan, under_torch in zip(
        served["iterations"][3:], alone["iterations"][3:], strict=True
    ):
        # the loss that the script keeps, and its segment of 2 MiB, are not the plan's
        assert under_plan["fallback"]["requests"] <= 1
        assert under_plan["unmatched"]["requests"] == 0
        assert under_plan["peak_allocated_bytes"] == pytest.approx(
            under_torch["peak_allocated_bytes"], abs=4096
        )
        assert under_plan["peak_reserved_bytes"] <= under_plan["peak_allocated_bytes"] + 2 * 2**21


@pytest.mark.cuda
def test_an_iteration_that_differs_is_told_once_and_the_next_is_on_the_plan(
    plan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = ["--", str(TRAIN), "dense", "--iterations", "8", "--other-batch-at", "3"]
    file = tmp_path / "run.json"
    assert main(["run", "--plan", str(plan), "--json", str(file), *script]) == 0
    printed = capfd.readouterr()
    assert printed.err.count(" differs from its plan: ") == 1
    assert "iteration 3 differs from its plan: " in printed.err
    assert main(["run", "--allocator", "torch", *script]) == 0
    assert outcome(capfd.readouterr().out)["losses"] == outcome(printed.out)["losses"]
    iterations = results(file)[0]["iterations"]
    assert iterations[3]["unmatched"]["requests"] > 100
    for after in iterations[4:]:
        assert after["unmatched"]["requests"] == 0
        assert after["fallback"]["requests"] <= 5


@pytest.mark.cuda
@pytest.mark.parametrize("served", ["torch", "native", "expandable", "plan"])
def test_what_scripts_are_accustomed_to_works(
    served: str, plan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "accustomed.py"
    script.write_text(ACCUSTOMED)
    words = ["--plan", str(plan)] if served == "plan" else ["--allocator", served]
    assert main(["run", *words, "--", str(script)]) == 0, capfd.readouterr().err
    assert [json.loads(line) for line in capfd.readouterr().out.splitlines()] == ANSWERED


@pytest.mark.cuda
def test_a_pool_of_torchs_own_is_refused_in_a_sentence(
    plan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "pool.py"
    script.write_text("import torch\ntorch.cuda.MemPool()\n")
    assert main(["run", "--plan", str(plan), "--", str(script)]) == 1
    assert "MemPool needs PyTorch's own allocator" in capfd.readouterr().err


def test_a_missing_command_is_told_before_a_missing_gpu(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--allocator", "native"]) == 2
    assert "Expected a command to run after --" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "A run under stalloc needs --plan"),
        (["--allocator", "stalloc"], 2, "A run under stalloc needs --plan"),
        (["--allocator", "native", "--plan", "plan.json"], 2, "no other allocator takes one"),
        (["--allocator", "torch", "--device-memory", "1GiB"], 2, "limits our allocators"),
        (["--allocator", "natve"], 2, "among torch, native, expandable, stalloc, got 'natve'"),
        (["--allocator", "ideal"], 2, "ideal exists in simulation only"),
        (["--plan", "."], 2, "The folder . holds no rank-R.plan.json"),
        (["--plan", "missing.json"], 1, "missing.json"),
        (["--allocator", "native", "--json", "-"], 2, "into the script's own output"),
    ],
)
def test_what_cannot_be_is_one_sentence_before_the_script_starts(
    words: list[str], code: int, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words, "--", "train.py"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert complaint in err
    assert len(err.splitlines()) == 1
